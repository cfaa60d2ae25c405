//! The tests that look at the library from outside, in one binary.

mod derive;
mod layers;
mod source;
mod support;
mod testing;
mod tidy;
mod ui;
