//! Logs to stderr, as text for people or as JSON for programs.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::{LogConfig, LogFormat};

/// Starts to log. The level has been checked with the configuration.
pub(crate) fn start(config: &LogConfig) {
    let filter: Targets = config.level.parse().unwrap_or_default();
    let layer = match config.format {
        LogFormat::Text => fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
        LogFormat::Json => fmt::layer().with_writer(io::stderr).json().flatten_event(true).boxed(),
    };
    // A second start, as in a test, keeps the first.
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}
