//! A machine controller for Kubernetes.

pub mod api;
pub mod cli;
pub mod controllers;
pub mod drain;
pub mod driver;
pub mod runtime;
pub mod safety;
