//! The namespaces of a cell.

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};

/// Selects the objects of the control cluster that belong to a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellScope {
    /// The objects of one namespace.
    Namespace(String),
    /// The objects of all namespaces.
    All,
}

impl CellScope {
    /// The API of a kind for this scope.
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
            Self::All => Api::all(client.clone()),
        }
    }
}

impl std::fmt::Display for CellScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace(namespace) => f.write_str(namespace),
            Self::All => f.write_str("all namespaces"),
        }
    }
}
