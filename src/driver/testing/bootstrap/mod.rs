//! Bootstrap data as the kubeadm bootstrap provider of Cluster API v1.14.2 wrote them. Only keys, certificates and tokens are
//! replaced, by others of the same length.

/// By what they are for.
pub const ALL: [(&str, &[u8]); 4] = [
    ("init", include_bytes!("init.cloud-config")),
    ("join of a control plane", include_bytes!("join-control-plane.cloud-config")),
    ("join of a worker", include_bytes!("join-worker.cloud-config")),
    ("join of a worker with Ignition", include_bytes!("join-worker.ignition.json")),
];
