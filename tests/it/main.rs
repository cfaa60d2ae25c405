//! The one integration binary: real servers, no mocks.

mod testing;
