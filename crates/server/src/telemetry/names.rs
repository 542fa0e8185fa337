//! Every metric's name, in one place. Counters get `_total` and units their suffix when they are
//! written out; so `VERDICTS` is shown as `tollgate_verdicts_total`.
//!
//! No label ever comes from a caller: rules come from the policy, everything else is a closed list.

/// Before every name.
pub(crate) const PREFIX: &str = "tollgate";

/// `{version}`: the build.
pub(crate) const BUILD: &str = "build";
/// `{rule, outcome, source, on_outage}`: asks answered, under the rule that was binding.
pub(crate) const VERDICTS: &str = "verdicts";
/// `{rule, outcome}`: peeks answered.
pub(crate) const PEEKS: &str = "peeks";
/// `{rule, mode, outcome}`: what limits would have done that refuse nobody.
pub(crate) const ADVICE: &str = "advice";
/// `{returned}`: refunds carried out, by how much came back.
pub(crate) const REFUNDS: &str = "refunds";
/// `{found}`: what stood under a key when it was taken from.
pub(crate) const BUCKETS: &str = "buckets";
/// `{change}`: tokens taken ahead for hot keys, and what was not spent of them.
pub(crate) const LEASE_TOKENS: &str = "lease_tokens";
/// Keys that this instance holds leases on.
pub(crate) const LEASES: &str = "leases";
/// Times the store was set aside.
pub(crate) const OUTAGES: &str = "outages";
/// Instances alive, as the last heartbeat saw them.
pub(crate) const INSTANCES: &str = "instances";
/// The policy in force.
pub(crate) const POLICY_VERSION: &str = "policy_version";
/// Rules in it.
pub(crate) const POLICY_RULES: &str = "policy_rules";
/// `{result}`: reloads of the file, by what came of them.
pub(crate) const POLICY_RELOADS: &str = "policy_reloads";
/// 1 while the file was refused and an older policy is in force.
pub(crate) const POLICY_RELOAD_FAILED: &str = "policy_reload_failed";
/// Overrides of single keys that are known here.
pub(crate) const OVERRIDES: &str = "overrides";
/// 1 while the board of overrides is out of reach.
pub(crate) const BOARD_UNREACHABLE: &str = "overrides_board_unreachable";

/// `{breaker, state}`: breakers in use here.
pub(crate) const BREAKERS: &str = "breakers";
/// `{breaker, answer}`: calls asked for, by what was answered.
pub(crate) const BREAKER_ACQUIRES: &str = "breaker_acquires";
/// `{breaker, outcome}`: reports that count.
pub(crate) const BREAKER_CALLS: &str = "breaker_calls";
/// `{breaker, why}`: reports that do not.
pub(crate) const BREAKER_LATE: &str = "breaker_late_reports";
/// `{breaker, record, cause}`: changes.
pub(crate) const BREAKER_TRANSITIONS: &str = "breaker_transitions";
/// `{breaker}`: probes under way that were granted here.
pub(crate) const BREAKER_PROBES: &str = "breaker_probe_leases";
/// Calls under way whose reports are waited for.
pub(crate) const BREAKER_CALLS_HELD: &str = "breaker_calls_held";
/// Calls that were granted and never reported.
pub(crate) const BREAKER_UNREPORTED: &str = "breaker_calls_unreported";
/// How long outcomes waited to be told to the fleet, in seconds.
pub(crate) const BREAKER_FLUSH_LAG: &str = "breaker_flush_lag";
/// `{result}`: reports to the fleet.
pub(crate) const BREAKER_FLUSHES: &str = "breaker_flushes";

/// `{operation, result}`: calls to Redis.
pub(crate) const REDIS_OPERATIONS: &str = "redis_operations";
/// `{class}`: calls that failed, by why.
pub(crate) const REDIS_ERRORS: &str = "redis_errors";
/// `{operation}`: how long callers waited, in seconds.
pub(crate) const REDIS_LATENCY: &str = "redis_latency";
/// Shards for which rules answer by `on_outage`: 1 or 0, but on a cluster.
pub(crate) const REDIS_FALLBACK_ACTIVE: &str = "redis_fallback_active";
/// `{state}`: connections, busy and idle.
pub(crate) const REDIS_CONNECTIONS: &str = "redis_connections";
/// Dials that succeeded.
pub(crate) const REDIS_DIALS: &str = "redis_dials";
/// Dials that failed.
pub(crate) const REDIS_DIAL_ERRORS: &str = "redis_dial_errors";
/// Redis' `used_memory`.
pub(crate) const REDIS_USED_MEMORY: &str = "redis_used_memory_bytes";
/// Redis' `maxmemory`.
pub(crate) const REDIS_MAX_MEMORY: &str = "redis_max_memory_bytes";
/// Keys in Redis' database.
pub(crate) const REDIS_KEYS: &str = "redis_keys";
/// 1 while time is reckoned here because scripts may not read Redis' clock.
pub(crate) const REDIS_CLIENT_TIME: &str = "redis_client_time";
/// 1 while asks are calls of functions, 0 while they are scripts.
pub(crate) const REDIS_FUNCTIONS: &str = "redis_functions";
/// How many takes went out together, call by call.
pub(crate) const REDIS_BATCH_SIZE: &str = "redis_batch_size";
/// Refusals remembered.
pub(crate) const DENY_CACHE_ENTRIES: &str = "deny_cache_entries";
/// The most of them.
pub(crate) const DENY_CACHE_MAX_ENTRIES: &str = "deny_cache_max_entries";
/// 1 while pushes of other instances are heard.
pub(crate) const REDIS_LISTENING: &str = "redis_listening";
/// Pushes heard.
pub(crate) const REDIS_PUSHES: &str = "redis_pushes";
/// Pushes of another form, passed over.
pub(crate) const REDIS_PUSHES_MALFORMED: &str = "redis_pushes_malformed";

/// Keys this process remembers.
pub(crate) const MEMORY_KEYS: &str = "memory_keys";
/// The most it may.
pub(crate) const MEMORY_MAX_KEYS: &str = "memory_max_keys";
/// Takes that found no room of their own.
pub(crate) const MEMORY_OVERFLOWED: &str = "memory_overflowed";

/// `{route, status}`: HTTP answers by class of status.
pub(crate) const HTTP_ANSWERS: &str = "http_requests";
/// HTTP connections turned away because there were too many.
pub(crate) const HTTP_TURNED_AWAY: &str = "http_connections_refused";

/// `{command, result}`: RESP commands answered.
pub(crate) const RESP_COMMANDS: &str = "resp_commands";
/// RESP connections open.
pub(crate) const RESP_CONNECTIONS: &str = "resp_connections";
/// `{why}`: RESP connections the server ended.
pub(crate) const RESP_CLOSED: &str = "resp_connections_closed";
/// RESP connections turned away because there were too many.
pub(crate) const RESP_TURNED_AWAY: &str = "resp_connections_refused";
/// `{method, code}`: gRPC answers by status.
pub(crate) const GRPC_ANSWERS: &str = "grpc_requests";
/// Requests at the gRPC door that were no gRPC.
pub(crate) const GRPC_STRANGERS: &str = "grpc_strangers";
/// gRPC connections turned away because there were too many.
pub(crate) const GRPC_TURNED_AWAY: &str = "grpc_connections_refused";
