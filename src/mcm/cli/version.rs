//! `mcm version`.

use crate::process::{self, drivers_of_build};
use mcm_runtime::kubeconfig::API_VERSION;

/// Name, version, commit if known, drivers, the API group, and the platform as Go and container images call it.
pub fn text() -> String {
    format!(
        "mcm {}\ncommit: {}\ndrivers: {}\napi: {API_VERSION}\nplatform: {}/{}\n",
        process::VERSION,
        process::commit(),
        drivers(),
        std::env::consts::OS,
        architecture(),
    )
}

fn drivers() -> String {
    let (mut built_in, left_out) = drivers_of_build();
    if cfg!(feature = "remote") {
        built_in.push("remote");
    }
    match left_out.is_empty() {
        true => built_in.join(", "),
        false => format!("{} ({}: not in this build)", built_in.join(", "), left_out.join(", ")),
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
