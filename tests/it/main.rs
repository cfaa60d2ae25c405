//! The one integration binary: real servers, no mocks.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the failure of a test is a panic, with what its children said"
)]

mod support;
mod testing;
