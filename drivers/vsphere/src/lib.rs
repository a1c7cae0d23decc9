//! The driver of vSphere.
