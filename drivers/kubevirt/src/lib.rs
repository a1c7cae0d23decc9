//! The driver of KubeVirt.
