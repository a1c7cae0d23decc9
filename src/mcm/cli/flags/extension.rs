//! Flags of the update extension for Cluster API.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{LogOptions, value};
use crate::process::ExtensionOptions;
use mcm_runtime::http::CertificateFiles;

/// All flags of `capi-extension`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CapiExtensionOptions {
    /// Kubeconfig of the management cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(help_heading = "Clusters", long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Listen address of the hooks and of /healthz, over TLS
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = ":9443",
        value_name = "ADDRESS",
        value_parser = value::listen_address
    )]
    pub address: SocketAddr,

    /// Certificate chain in PEM form, reloaded when it changes. It names the Service of the ExtensionConfig
    #[arg(help_heading = "HTTP endpoints", long, value_name = "FILE")]
    pub tls_cert_file: PathBuf,

    /// Key of that certificate
    #[arg(help_heading = "HTTP endpoints", long, value_name = "FILE")]
    pub tls_private_key_file: PathBuf,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

impl CapiExtensionOptions {
    /// The options of the process.
    pub(in crate::cli) fn process(self) -> ExtensionOptions {
        ExtensionOptions {
            control: self.kubeconfig.into(),
            listen: self.address,
            files: CertificateFiles { cert: self.tls_cert_file, key: self.tls_private_key_file },
        }
    }
}
