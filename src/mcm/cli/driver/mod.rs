//! Remote drivers.

mod error;
mod input;
mod options;
mod report;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};

use super::flags::{LogOptions, SecretOptions, place_for, value};
use crate::process::{self, DriverServerOptions, SimulatedPlace};
use input::DriverTestInput;
use mcm_driver::{DriverGuards, conformance};
use mcm_driver_host::remote::{DriverEndpoint, ListenAddress, ListenOptions, RemoteDriver, TextTreatment, TlsFiles};

pub use error::NotTested;
pub use options::TestOptions;
pub use report::DriverTestReport;

/// Sub-commands of `mcm driver`.
#[derive(Debug, Subcommand)]
pub enum DriverCommand {
    /// Serve the built-in drivers to another mcm
    #[command(after_help = "Examples:\n  mcm driver serve --provider AWS --listen unix:///run/mcm/aws.sock")]
    Serve(Box<DriverServeFlags>),
    /// Test a driver in any language: create and delete a few VMs, and report violated rules of docs/drivers.md
    ///
    /// Exit code: 0 every check passed, 3 a check failed, 1 the driver could not be tested.
    #[command(after_help = "Examples:\n  mcm driver test unix:///run/mcm/aws.sock -f class.yaml --secret secret.yaml")]
    Test(Box<TestOptions>),
}

/// Flags of `mcm driver serve`.
#[derive(Args, Clone, Debug)]
pub struct DriverServeFlags {
    /// Serve only the driver of this provider; all drivers if absent
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Listen address: unix:///PATH, which only its user can open, or HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen)]
    listen: ListenAddress,
    /// Certificate of this server; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// CA of client certificates; clients without such a certificate are rejected
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    client_ca_file: Option<PathBuf>,
    /// Serve other hosts without TLS, or without client certificates
    #[arg(long)]
    insecure: bool,
    /// Let the group of a Unix socket open it
    #[arg(long)]
    group_access: bool,
    /// Simulated cloud to serve: its URL, or "embedded"; none if absent
    #[arg(long, value_name = "URL", value_parser = value::simulated_place)]
    simulated_cloud: Option<SimulatedPlace>,
    /// Permissions of Secrets of classes.
    #[command(flatten)]
    secrets: SecretOptions,
    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

/// Serves drivers until the process is told to stop.
///
/// # Errors
/// The provider is not built in, or the address cannot be had.
pub async fn serve(options: DriverServeFlags) -> Result<()> {
    process::serve_drivers(server_options(options)).await
}

fn server_options(options: DriverServeFlags) -> DriverServerOptions {
    let tls = TlsFiles { ca: options.client_ca_file, cert: options.cert_file, key: options.key_file };
    DriverServerOptions {
        simulated_cloud: place_for(options.provider.as_deref(), options.simulated_cloud.as_ref()),
        provider: options.provider,
        // Classes come from all namespaces of all clients.
        secrets: options.secrets.policy_of_tenants(),
        listen: ListenOptions {
            listen: options.listen,
            tls,
            is_insecure: options.insecure,
            has_group_access: options.group_access,
        },
    }
}

/// More than a cloud needs for some twenty VMs.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Runs the conformance suite against a driver.
///
/// # Errors
/// The driver could not be tested.
pub async fn test(options: TestOptions) -> Result<DriverTestReport, NotTested> {
    if options.address.is_exposed() && !options.insecure {
        return Err(NotTested::Exposed(options.address));
    }
    let prefix = format!("{}-{:06x}", options.prefix, rand::random::<u32>() >> 8);
    let input = DriverTestInput::read(&options)?;
    let endpoint = DriverEndpoint {
        name: input.class.provider.trim().to_owned(),
        address: options.address.clone(),
        tls: TlsFiles { ca: options.ca_file, cert: options.cert_file, key: options.key_file },
        server_name: options.server_name,
    };
    let driver = RemoteDriver::open(&endpoint, TextTreatment::AsTheyAre, &DriverGuards::unobserved().observer);
    driver.reached().await.map_err(|error| NotTested::Unreachable(error.message))?;
    let subject = input.subject(&driver, prefix);
    let results = tokio::time::timeout(LIMIT, conformance::run(&subject)).await;
    let results = results.map_err(|_| NotTested::Endless(LIMIT))?;
    Ok(DriverTestReport::new(&endpoint, results, options.output))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::args::{self, McmCommand};

    #[test]
    fn namespaces_of_clients_are_tenants() {
        let words = ["mcm", "driver", "serve", "--listen=unix:///s", "--credential-files-folder=/wi"];
        let parsed = args::parse(words.map(OsString::from)).unwrap();
        let McmCommand::Driver { command: DriverCommand::Serve(options) } = parsed else { panic!("another command") };
        let policy = server_options(*options).secrets;
        let class = serde_json::json!({ "metadata": { "name": "c", "namespace": "team-b" }, "providerSpec": {} });
        let policy = policy.for_class(&serde_json::from_value(class).unwrap()).into_owned();
        assert!(policy.check_file("file", "/wi/team-b/token").is_ok());
        for file in ["/wi/team-a/token", "/wi/token"] {
            assert!(policy.check_file("file", file).is_err(), "{file}");
        }
    }
}
