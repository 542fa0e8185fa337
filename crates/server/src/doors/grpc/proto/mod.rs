//! The messages of our own service, and of Envoy's: made by `cargo xtask codegen` of `crates/server/proto`.
//!
//! Envoy's request and response are read and written by hand (see `rls`), so these types of theirs are what
//! the hands are tested against.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "made by a program, from files that have their own words"
)]

/// Every file of the services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

pub mod tollgate {
    #[rustfmt::skip]
    pub mod v1;
}

#[cfg(test)]
pub mod envoy {
    pub mod config {
        pub mod core {
            #[rustfmt::skip]
            pub mod v3;
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                #[rustfmt::skip]
                pub mod v3;
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            #[rustfmt::skip]
            pub mod v3;
        }
    }
    pub mod r#type {
        #[rustfmt::skip]
        pub mod v3;
    }
}
