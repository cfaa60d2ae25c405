//! The tests that look at the library from outside, in one binary.

mod derive;
mod layers;
mod source;
mod tidy;
mod ui;
