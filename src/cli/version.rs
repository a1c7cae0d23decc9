//! `mcm version`.

/// Name, version, commit if known, and the API group.
pub fn text() -> String {
    let commit = option_env!("MCM_COMMIT").unwrap_or("unknown");
    format!(
        "mcm {}\ncommit: {commit}\napi: {}\nplatform: {}/{}\n",
        env!("CARGO_PKG_VERSION"),
        crate::runtime::kubeconfig::API_VERSION,
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}
