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
