//! What changes while the server runs tells: reloads and overrides, as metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{family, names};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// What reloads and overrides tell.
#[derive(Debug)]
pub(crate) struct ControlMetrics {
    /// Reloaded, unchanged, refused.
    reloads: [Counter; 3],
    reload_failed: Gauge,
    overrides: Gauge,
    board_unreachable: Gauge,
}

impl ControlMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> ControlMetrics {
        let help = "Reloads of the file, by what came of them";
        let reloads: Family<ResultLabel, Counter> =
            family(registry, names::POLICY_RELOADS, help, Family::default());
        let reload_failed = Gauge::default();
        let help = "1 while the file was refused and an older policy is in force";
        registry.register(names::POLICY_RELOAD_FAILED, help, reload_failed.clone());
        let overrides = Gauge::default();
        registry.register(
            names::OVERRIDES,
            "Overrides of single keys that are known here",
            overrides.clone(),
        );
        let board_unreachable = Gauge::default();
        let help = "1 while the board of overrides is out of reach, and changes made elsewhere are not seen";
        registry.register(names::BOARD_UNREACHABLE, help, board_unreachable.clone());
        ControlMetrics {
            reloads: ["reloaded", "unchanged", "refused"]
                .map(|result| reloads.get_or_create_owned(&ResultLabel { result })),
            reload_failed,
            overrides,
            board_unreachable,
        }
    }

    /// How often a file was put in force, the start included, and how often one was refused.
    pub(crate) fn loads(&self) -> (u64, u64) {
        (self.reloads[0].get() + 1, self.reloads[2].get())
    }

    /// Another policy is in force.
    pub(crate) fn reloaded(&self) {
        self.reloads[0].inc();
        self.reload_failed.set(0);
    }

    /// The policy in force was found in the file.
    pub(crate) fn found_unchanged(&self) {
        self.reloads[1].inc();
        self.reload_failed.set(0);
    }

    /// So many overrides are known.
    pub(crate) fn overrides(&self, count: usize) {
        self.overrides.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the board is out of reach.
    pub(crate) fn board_unreachable(&self, is_so: bool) {
        self.board_unreachable.set(i64::from(is_so));
    }

    /// The file was refused.
    pub(crate) fn refused(&self) {
        self.reloads[2].inc();
        self.reload_failed.set(1);
    }
}
