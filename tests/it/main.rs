//! The tests that look at the library from outside, in one binary.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the failure of a test is a panic, with what its children said"
)]

mod client;
mod conformance;
mod defects;
mod derive;
mod faults;
mod layers;
mod limits;
mod source;
mod support;
mod testing;
mod tidy;
mod ui;
