//! The replicated part, in the model alone.
