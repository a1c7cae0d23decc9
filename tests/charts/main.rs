//! The chart with the real helm, and the kustomize bases, on a real API server. No kubelet starts the pods, so the tests run the
//! binary with the arguments of the Deployments and the tokens of their ServiceAccounts.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod capi;
mod cluster;
mod gardener;
mod kustomize;
mod options;
mod release;
mod rights;
mod shoot;
mod values;
