//! The tests that look at the library from outside, in one binary.

mod layers;
mod source;
mod tidy;
