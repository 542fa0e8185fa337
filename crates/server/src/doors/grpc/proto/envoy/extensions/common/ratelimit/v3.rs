//! Messages of `envoy.extensions.common.ratelimit.v3`, made by `cargo xtask codegen`: do not edit.

#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: ::prost::alloc::vec::Vec<rate_limit_descriptor::Entry>,
    #[prost(message, optional, tag = "2")]
    pub limit: ::core::option::Option<rate_limit_descriptor::RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub hits_addend: ::core::option::Option<u64>,
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}
/// Nested message and enum types in `RateLimitDescriptor`.
pub mod rate_limit_descriptor {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Entry {
        #[prost(string, tag = "1")]
        pub key: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub value: ::prost::alloc::string::String,
    }
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RateLimitOverride {
        #[prost(uint32, tag = "1")]
        pub requests_per_unit: u32,
        #[prost(
            enumeration = "super::super::super::super::super::r#type::v3::RateLimitUnit",
            tag = "2"
        )]
        pub unit: i32,
    }
}
