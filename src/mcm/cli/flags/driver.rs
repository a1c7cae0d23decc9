//! Flags of the drivers.

use std::path::PathBuf;

use clap::Args;

use super::value;
use crate::process::SimulatedPlace;
use mcm_driver::{
    SecretPolicy,
    secret_policy::{AllowedEndpoint, GARDENER_FOLDER},
};
use mcm_driver_host::ON_REQUEST;
#[cfg(feature = "remote")]
use mcm_driver_host::remote::{DriverEndpoint, TlsFiles};

/// Flags of the drivers.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Drivers")]
pub struct DriverOptions {
    /// Serve only classes of this provider; all drivers if absent
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    /// Simulated cloud to serve: its URL, or "embedded"; none if absent
    #[arg(long, value_name = "URL", value_parser = value::simulated_place)]
    pub(in crate::cli) simulated_cloud: Option<SimulatedPlace>,

    /// Permissions of Secrets of classes.
    #[command(flatten)]
    pub secrets: SecretOptions,

    /// Remote drivers.
    #[cfg(feature = "remote")]
    #[command(flatten)]
    pub remote: RemoteOptions,
}

impl DriverOptions {
    /// The simulated cloud to serve.
    pub(in crate::cli) fn simulated_place(&self) -> Option<SimulatedPlace> {
        place_for(self.provider.as_deref(), self.simulated_cloud.as_ref())
    }
}

/// The simulated cloud to serve: that of its flag, or one in this process if it is the only provider.
pub(in crate::cli) fn place_for(provider: Option<&str>, place: Option<&SimulatedPlace>) -> Option<SimulatedPlace> {
    let is_only = provider.is_some_and(|name| name.eq_ignore_ascii_case(ON_REQUEST));
    place.cloned().or(is_only.then_some(SimulatedPlace::Embedded))
}

/// Flags about what Secrets of classes may use of the process.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Drivers")]
pub struct SecretOptions {
    /// Namespaces whose classes may use the cloud credentials of this process (environment, workload identity, instance
    /// profile), if neither the class nor its Secret has credentials; "*" for all namespaces
    #[arg(long, value_name = "NAMESPACE,…", value_delimiter = ',', value_parser = value::namespace_or_star)]
    pub process_credentials_namespaces: Vec<String>,

    /// Folder with the token files that Secrets may name; may be repeated
    #[arg(long, value_name = "FOLDER", default_value = GARDENER_FOLDER, value_parser = value::folder)]
    pub credential_files_folder: Vec<PathBuf>,

    /// Hosts that Secrets may name in addition to the domains of their cloud: HOST, HOST:PORT or *.DOMAIN for https,
    /// http://HOST for http
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', value_parser = value::allowed_endpoint)]
    pub allowed_cloud_endpoints: Vec<AllowedEndpoint>,
}

impl SecretOptions {
    /// Permissions of Secrets.
    pub fn policy(&self) -> SecretPolicy {
        SecretPolicy {
            process_credentials: self.process_credentials_namespaces.clone(),
            folders: self.credential_files_folder.clone(),
            endpoints: self.allowed_cloud_endpoints.clone(),
            ..SecretPolicy::default()
        }
    }

    /// Permissions of Secrets in a process that serves several namespaces.
    pub fn policy_of_tenants(&self) -> SecretPolicy {
        SecretPolicy { confines_files: true, ..self.policy() }
    }
}

impl Default for SecretOptions {
    fn default() -> Self {
        let SecretPolicy { process_credentials, folders, endpoints, .. } = SecretPolicy::default();
        Self {
            process_credentials_namespaces: process_credentials,
            credential_files_folder: folders,
            allowed_cloud_endpoints: endpoints,
        }
    }
}

/// Flags of remote drivers.
#[cfg(feature = "remote")]
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Drivers")]
pub struct RemoteOptions {
    /// A remote driver and the provider that it serves; may be repeated. ADDRESS is unix:///PATH, https://HOST:PORT, or
    /// http://HOST:PORT on this host; ",ca=FILE", ",cert=FILE", ",key=FILE" and ",server-name=NAME" may follow
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = value::driver_endpoint)]
    pub driver: Vec<DriverEndpoint>,

    /// CA of the certificates of drivers, for https; files are reloaded when they change
    #[arg(long, value_name = "FILE")]
    pub driver_ca_file: Option<PathBuf>,

    /// Certificate with which mcm identifies itself to drivers
    #[arg(long, value_name = "FILE")]
    pub driver_cert_file: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, value_name = "FILE")]
    pub driver_key_file: Option<PathBuf>,

    /// Allow http:// to other hosts: credentials are sent unencrypted
    #[arg(long, default_value = "false", action = clap::ArgAction::Set, value_parser = value::boolean)]
    pub driver_insecure: bool,
}

#[cfg(feature = "remote")]
impl RemoteOptions {
    /// The drivers, each with its files.
    pub fn endpoints(&self) -> Vec<DriverEndpoint> {
        let files = TlsFiles {
            ca: self.driver_ca_file.clone(),
            cert: self.driver_cert_file.clone(),
            key: self.driver_key_file.clone(),
        };
        self.driver.iter().map(|endpoint| endpoint.clone().or_files(&files)).collect()
    }
}
