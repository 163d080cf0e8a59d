//! Random inputs against a model of the server.
