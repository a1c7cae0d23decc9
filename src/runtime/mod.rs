//! What the controllers run on.

pub mod kubeconfig;
