//! The one integration binary: real servers, no mocks.

mod support;
mod testing;
