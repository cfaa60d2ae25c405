//! A private redis-server for the tests of this layer.
