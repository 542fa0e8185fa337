//! Another policy while the server runs: read, checked and built whole, then put in force as one.
//!
//! A reload uses the very code of a start, so it refuses what a start would refuse, with the same words,
//! and then changes nothing. Everything that reloads (the file that changed, SIGHUP, the admin door) comes
//! through [`Reloader::reload`], one at a time.
//!
//! What else is to change together with the rules (who is believed about the caller, say) travels with
//! the policy as its companion: see [`PolicyBuilder::companion`](tollgate::core::policy::PolicyBuilder).

mod disk;
mod forgets;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tollgate::core::policy::PolicyError;
use tollgate::{Micros, Policy, clock};

use crate::breakers::Service as Breakers;
use crate::config::{Config, ConfigError, Digest, Overrides, Source};
use crate::engine::Engine;
use crate::overrides::Overrides as KeyOverrides;
use crate::telemetry::control::ControlMetrics;

use disk::Disk;
pub(crate) use watch::watch;

/// The version of the policy a server starts with.
pub(crate) const FIRST_VERSION: u64 = 1;

/// How long reading and checking may take: beyond it a disk is gone, and not slow.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Puts other policies in force.
#[derive(Debug)]
pub(crate) struct Reloader {
    engine: Engine,
    flags: Overrides,
    /// What the process runs with, of which only the policy changes.
    started: Config,
    /// Made for the rules of a policy, and so made again for those of another.
    overrides: Arc<KeyOverrides>,
    /// In use, with settings of the policy.
    breakers: Arc<Breakers>,
    metrics: Arc<ControlMetrics>,
    /// What was read last, good or bad. Held by whoever reloads.
    tried: Mutex<Seen>,
    disk: Mutex<Disk<(Seen, Result<Config, ConfigError>)>>,
    status: ArcSwap<Status>,
}

/// What stood in the file: a text, or the reason why there was none.
type Seen = Result<Digest, String>;

/// What came of the reloads so far.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) in_force: InForce,
    /// Why the last one was refused, until one is not.
    pub(crate) failure: Option<Failure>,
}

/// The policy in force and where it came from.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    pub(crate) version: u64,
    pub(crate) digest: Digest,
    /// When it was put in force, by this host's clock.
    pub(crate) loaded: Micros,
    /// Sections of the file that say something else than the process runs with.
    pub(crate) restart_needed: Vec<&'static str>,
    /// What was spent under the policy before and does not count under this one; said until the next reload.
    pub(crate) forgets: Vec<String>,
}

/// A reload that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// By this host's clock.
    pub(crate) at: Micros,
    pub(crate) why: Arc<ConfigError>,
}

/// Who asked for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The file is another.
    File,
    /// SIGHUP.
    Signal,
    /// The admin door.
    Admin,
}

/// What came of one reload.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Another policy is in force.
    Reloaded(InForce),
    /// The text is the one that is in force.
    Unchanged(InForce),
    /// The text was refused, and nothing changed.
    Refused(Arc<ConfigError>),
    /// The built-in policy has no file.
    NoFile,
}

impl Trigger {
    const fn name(self) -> &'static str {
        match self {
            Trigger::File => "the file changed",
            Trigger::Signal => "SIGHUP",
            Trigger::Admin => "admin door",
        }
    }
}

/// The policy that a configuration describes.
pub(crate) fn policy(config: &Config, version: u64) -> Result<Policy, PolicyError> {
    config.policy.build(version, &config.facing)
}

impl Reloader {
    /// For an engine that was started with this configuration, of the text of this digest.
    pub(crate) fn new(
        engine: Engine,
        config: Config,
        flags: Overrides,
        digest: Digest,
        overrides: Arc<KeyOverrides>,
        breakers: Arc<Breakers>,
        metrics: Arc<ControlMetrics>,
    ) -> Reloader {
        let in_force = InForce {
            version: engine.policy().version(),
            digest,
            loaded: clock::wall(),
            restart_needed: Vec::new(),
            forgets: Vec::new(),
        };
        let status = Status { in_force, failure: None };
        let (tried, disk) = (Mutex::new(Ok(digest)), Mutex::new(Disk::default()));
        let status = ArcSwap::from_pointee(status);
        Reloader { engine, flags, started: config, overrides, breakers, metrics, tried, disk, status }
    }

    /// What came of the reloads so far.
    pub(crate) fn status(&self) -> Arc<Status> {
        self.status.load_full()
    }

    /// Reads the file now, and puts it in force if it is good and another.
    pub(crate) async fn reload(&self, trigger: Trigger) -> Outcome {
        let mut tried = self.tried.lock().await;
        if self.flags.file.is_none() && self.flags.envoy_config.is_none() {
            tracing::warn!(trigger = trigger.name(), "nothing to reload: the built-in policy has no file");
            return Outcome::NoFile;
        }
        let flags = self.flags.clone();
        // Away from the heartbeats: a file may be large, and its disk slow.
        let read = self.disk.lock().await.wait_for(READ_WITHIN, move || read(flags)).await;
        let (seen, checked) = read.unwrap_or_else(|why| {
            let path = self.flags.file.as_ref().map_or_else(String::new, |file| file.display().to_string());
            let why = why.to_owned();
            (Err(why.clone()), Err(ConfigError::Unreadable { path, why }))
        });
        tried.clone_from(&seen);
        let (config, digest) = match (checked, seen) {
            (Ok(config), Ok(digest)) => (config, digest),
            (Err(error), _) => return self.refused(trigger, error),
            (Ok(_), Err(why)) => {
                return self.refused(trigger, ConfigError::Unreadable { path: "the file".to_owned(), why });
            }
        };
        let status = self.status.load();
        if digest == status.in_force.digest {
            // The text is the same, but the keys it names may have been replaced: they are in force now.
            if let Ok(policy) = policy(&config, status.in_force.version) {
                self.engine.swap_policy(&policy);
            }
            return self.unchanged(trigger, &status);
        }
        let version = self.engine.policy().version().saturating_add(1);
        let policy = match policy(&config, version) {
            Ok(policy) => policy,
            Err(error) => return self.refused(trigger, ConfigError::NoPolicy(error)),
        };
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let before = self.engine.policy();
        let forgets = forgets::forgets(&before, &policy);
        self.engine.swap_policy(&policy);
        self.breakers.apply(&config.breakers);
        self.overrides.reapply().await;
        let restart_needed = self.started.differs_in(&config);
        let in_force = InForce { version, digest, loaded: clock::wall(), restart_needed, forgets };
        tracing::info!(
            trigger = trigger.name(),
            version,
            rules = policy.rules().len(),
            sha256 = %digest,
            "another policy is in force"
        );
        if policy.rules().is_empty() && !before.rules().is_empty() {
            tracing::warn!(version, "the file has no rules any more: nothing is limited");
        }
        for what in &in_force.forgets {
            tracing::warn!(version, "{what}");
        }
        if !in_force.restart_needed.is_empty() {
            let sections = in_force.restart_needed.join(", ");
            tracing::warn!(sections, "the rules are in force; these sections changed too and need a restart");
        }
        self.status.store(Arc::new(Status { in_force: in_force.clone(), failure: None }));
        self.metrics.reloaded();
        Outcome::Reloaded(in_force)
    }

    /// The text is that of the policy in force; a bad one in between is forgotten.
    fn unchanged(&self, trigger: Trigger, status: &Status) -> Outcome {
        let in_force = InForce { forgets: Vec::new(), ..status.in_force.clone() };
        tracing::info!(
            trigger = trigger.name(),
            version = in_force.version,
            "the policy in force is the file's"
        );
        self.status.store(Arc::new(Status { in_force: in_force.clone(), failure: None }));
        self.metrics.found_unchanged();
        Outcome::Unchanged(in_force)
    }

    fn refused(&self, trigger: Trigger, why: ConfigError) -> Outcome {
        let in_force = self.status.load().in_force.clone();
        let version = in_force.version;
        tracing::error!(
            trigger = trigger.name(),
            version,
            "reload refused, the policy in force stays: {why}"
        );
        let why = Arc::new(why);
        let failure = Some(Failure { at: clock::wall(), why: Arc::clone(&why) });
        self.status.store(Arc::new(Status { in_force, failure }));
        self.metrics.refused();
        Outcome::Refused(why)
    }
}

/// Reads and checks the file. Blocks.
fn read(flags: Overrides) -> (Seen, Result<Config, ConfigError>) {
    match Source::read(flags.file.as_deref(), flags.envoy_config.as_deref()) {
        Err(error) => (Err(error.to_string()), Err(error)),
        Ok(source) => {
            let checked = Config::check(&source, flags).map_err(ConfigError::Refused);
            (Ok(source.digest()), checked)
        }
    }
}
