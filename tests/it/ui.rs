//! What the compiler says about mistakes in `#[derive(Task)]` and in handlers.
//!
//! After a change on purpose: `TRYBUILD=overwrite cargo test --test it ui`, then read the diff.

#[test]
fn mistakes_read_well() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
