//! Messages of `tollgate.v1`, made by `cargo xtask codegen`: do not edit.

/// Several asks at once, each answered by itself.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CheckRequest {
    /// At least one.
    #[prost(message, repeated, tag = "1")]
    pub asks: ::prost::alloc::vec::Vec<Ask>,
}
/// One question: all of its checks pass together, or nothing is spent.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Ask {
    /// At least one.
    #[prost(message, repeated, tag = "1")]
    pub checks: ::prost::alloc::vec::Vec<Check>,
}
/// One thing an ask wants. It is measured by a named rule, by a limit brought along, or by whatever rules
/// apply to its attributes.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Check {
    /// A rule of the policy.
    #[prost(string, tag = "1")]
    pub rule: ::prost::alloc::string::String,
    /// Whose limit it is; not with attributes alone, where the rules know their own keys.
    #[prost(string, tag = "2")]
    pub key: ::prost::alloc::string::String,
    /// How much; 0 is 1.
    #[prost(uint32, tag = "3")]
    pub cost: u32,
    /// A limit brought along: how many per how long, such as 100/s.
    #[prost(string, tag = "4")]
    pub limit: ::prost::alloc::string::String,
    /// With a limit: how many may come at once (token_bucket); 0 is the limit's own count.
    #[prost(uint32, tag = "5")]
    pub burst: u32,
    /// With a limit: token_bucket, sliding_log, sliding_window or fixed_window.
    #[prost(string, tag = "6")]
    pub algorithm: ::prost::alloc::string::String,
    /// With a limit: an IANA name, for calendar windows.
    #[prost(string, tag = "7")]
    pub time_zone: ::prost::alloc::string::String,
    /// What is known of the call: method, path, address, header.NAME and so on.
    #[prost(map = "string, string", tag = "8")]
    pub attributes: ::std::collections::HashMap<
        ::prost::alloc::string::String,
        ::prost::alloc::string::String,
    >,
    /// To refund: the take the check was answered with.
    #[prost(string, tag = "9")]
    pub take: ::prost::alloc::string::String,
}
/// One verdict for each ask, in order.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CheckResponse {
    #[prost(message, repeated, tag = "1")]
    pub verdicts: ::prost::alloc::vec::Vec<Verdict>,
}
/// The answer to one ask.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Verdict {
    /// Whether it may pass.
    #[prost(bool, tag = "1")]
    pub allowed: bool,
    /// The check that speaks for the ask: of those that refuse, the one to wait for longest, otherwise the
    /// one with the least left. Absent if no limit applied.
    #[prost(message, optional, tag = "2")]
    pub binding: ::core::option::Option<Part>,
    /// Who decided: store, lease, deny-cache, fallback, deny-list, shadow or unlimited.
    #[prost(string, tag = "3")]
    pub source: ::prost::alloc::string::String,
    /// With fallback: allow, deny or local.
    #[prost(string, tag = "4")]
    pub on_outage: ::prost::alloc::string::String,
    /// The policy it was decided under.
    #[prost(uint64, tag = "5")]
    pub policy_version: u64,
    /// Each check's part in it.
    #[prost(message, repeated, tag = "6")]
    pub parts: ::prost::alloc::vec::Vec<Part>,
    /// What Refund calls it by; empty if nothing was spent in the store. One for each of the ask's checks,
    /// in order.
    #[prost(string, repeated, tag = "7")]
    pub takes: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// One limit's part in a verdict.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Part {
    /// Whether it lets the ask pass.
    #[prost(bool, tag = "1")]
    pub allowed: bool,
    /// Empty for a limit brought along.
    #[prost(string, tag = "2")]
    pub rule: ::prost::alloc::string::String,
    /// The most that is admitted at once, and what is left of it.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    #[prost(uint32, tag = "4")]
    pub remaining: u32,
    /// Until the same ask can pass, if nobody else spends; absent if it passed, or if no waiting helps.
    #[prost(uint64, optional, tag = "5")]
    pub retry_after_ms: ::core::option::Option<u64>,
    /// Until the limit is whole again, if nobody spends.
    #[prost(uint64, tag = "6")]
    pub reset_after_ms: u64,
    /// Which of the ask's checks it belongs to.
    #[prost(uint32, tag = "7")]
    pub check: u32,
    /// enforced, shadow or candidate.
    #[prost(string, tag = "8")]
    pub mode: ::prost::alloc::string::String,
    /// What kind of subject was counted: key, address, token and so on.
    #[prost(string, tag = "9")]
    pub subject: ::prost::alloc::string::String,
}
/// Asks to undo: every check names its take.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RefundRequest {
    #[prost(message, repeated, tag = "1")]
    pub asks: ::prost::alloc::vec::Vec<Ask>,
}
/// One for each ask, in order.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RefundResponse {
    #[prost(message, repeated, tag = "1")]
    pub refunds: ::prost::alloc::vec::Vec<Refunded>,
}
/// What came back of one ask.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Refunded {
    /// all, part or nothing.
    #[prost(string, tag = "1")]
    pub returned: ::prost::alloc::string::String,
    /// The least that is left now under any of its limits, and of how much.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
    #[prost(uint32, tag = "3")]
    pub remaining: u32,
    /// Until that limit is whole again, if nobody spends.
    #[prost(uint64, tag = "4")]
    pub reset_after_ms: u64,
}
/// Which breaker a call is to pass.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AcquireRequest {
    /// The breaker: a name of the policy, or one that a pattern of it matches.
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
}
/// Whether a call may be made.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AcquireResponse {
    /// Whether it may.
    #[prost(bool, tag = "1")]
    pub allowed: bool,
    /// closed, open or half-open.
    #[prost(string, tag = "2")]
    pub state: ::prost::alloc::string::String,
    /// What Report calls it by; empty if it may not be made.
    #[prost(string, tag = "3")]
    pub token: ::prost::alloc::string::String,
    /// Whether it is a probe: then it is to be cancelled when its time is over.
    #[prost(bool, tag = "4")]
    pub probe: bool,
    /// How long its outcome is waited for; absent if it may not be made.
    #[prost(uint64, optional, tag = "5")]
    pub report_within_ms: ::core::option::Option<u64>,
    /// When to ask again; absent if it may be made.
    #[prost(uint64, optional, tag = "6")]
    pub retry_after_ms: ::core::option::Option<u64>,
}
/// How a call ended.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ReportRequest {
    /// The breaker it was made under.
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
    /// What Acquire called it. Without one it counts as of now, and in half-open for the oldest probe that this
    /// instance has granted.
    #[prost(string, tag = "2")]
    pub token: ::prost::alloc::string::String,
    /// success, failure, slow, or ignore: it says nothing about the other side.
    #[prost(string, tag = "3")]
    pub outcome: ::prost::alloc::string::String,
    /// How long it took, by your clock: a success that took too long is slow. Absent: since it was acquired.
    #[prost(uint64, optional, tag = "4")]
    pub elapsed_ms: ::core::option::Option<u64>,
    /// With a failure: what the other side's Retry-After said.
    #[prost(uint64, optional, tag = "5")]
    pub retry_after_ms: ::core::option::Option<u64>,
}
/// What came of a report.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ReportResponse {
    /// Whether it counts.
    #[prost(bool, tag = "1")]
    pub counted: bool,
    /// If not, why: changed, expired, unknown, elsewhere or unanswered.
    #[prost(string, tag = "2")]
    pub why: ::prost::alloc::string::String,
}
/// Which breaker is looked at.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StateRequest {
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
}
/// How a breaker stands, as this instance goes by.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Breaker {
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
    /// The entry of the policy it belongs to.
    #[prost(string, tag = "2")]
    pub breaker: ::prost::alloc::string::String,
    /// closed, open or half-open.
    #[prost(string, tag = "3")]
    pub state: ::prost::alloc::string::String,
    /// Whether a growing share of calls passes, on the way from half-open to closed.
    #[prost(bool, tag = "4")]
    pub ramping: bool,
    /// What is left of open; absent in any other state.
    #[prost(uint64, optional, tag = "5")]
    pub retry_after_ms: ::core::option::Option<u64>,
    /// What a person has decided instead of the rules; absent if nobody has.
    #[prost(message, optional, tag = "6")]
    pub r#override: ::core::option::Option<Standing>,
    /// Whether the fleet's record was in reach when it was last asked for.
    #[prost(bool, tag = "7")]
    pub shared: bool,
}
/// What a person has decided.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Standing {
    /// forced_open, forced_closed or metrics_only.
    #[prost(string, tag = "1")]
    pub mode: ::prost::alloc::string::String,
    /// How long it stays yet.
    #[prost(uint64, tag = "2")]
    pub left_ms: u64,
}
/// Some of the breakers in use.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ListRequest {
    /// Those whose ids come after this one; empty: from the first on.
    #[prost(string, tag = "1")]
    pub after: ::prost::alloc::string::String,
    /// How many at most, up to 1000; 0 is 100.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}
/// Some of the breakers in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub breakers: ::prost::alloc::vec::Vec<Breaker>,
    /// Whether there are more after the last of them.
    #[prost(bool, tag = "2")]
    pub more: bool,
}
/// What is to be decided. Needs authorization, as a refund does.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct OverrideRequest {
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
    /// forced_open, forced_closed or metrics_only.
    #[prost(string, tag = "2")]
    pub mode: ::prost::alloc::string::String,
    /// How long it is to stay: 30 days at most.
    #[prost(uint64, tag = "3")]
    pub ttl_ms: u64,
    /// Why, for whoever finds it.
    #[prost(string, tag = "4")]
    pub reason: ::prost::alloc::string::String,
    /// Who has decided it; may be left out.
    #[prost(string, tag = "5")]
    pub who: ::prost::alloc::string::String,
}
/// Where the rules are to decide again. Needs authorization, as a refund does.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct LiftRequest {
    #[prost(string, tag = "1")]
    pub id: ::prost::alloc::string::String,
}
