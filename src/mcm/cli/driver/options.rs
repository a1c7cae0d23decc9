//! Flags of a test.

use std::path::PathBuf;

use clap::Args;

use crate::cli::{flags::value, format::OutputFormat};
use mcm_driver_host::remote::DriverAddress;

/// Flags of `mcm driver test`.
#[derive(Args, Clone, Debug)]
pub struct TestOptions {
    /// Address of the driver: unix:///PATH, https://HOST:PORT or http://HOST:PORT
    #[arg(value_name = "ADDRESS", value_parser = value::driver_address)]
    pub(super) address: DriverAddress,
    /// A file or folder with the MachineClass from which VMs are created, or with its Secrets; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_delimiter = ',')]
    pub(super) files: Vec<PathBuf>,
    /// A file with Secrets: credentials and user data; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) secret: Vec<PathBuf>,
    /// A file with a MachineClass that the driver must reject
    #[arg(long, value_name = "FILE")]
    pub(super) invalid_class: Option<PathBuf>,
    /// A file with a MachineClass of another cluster, whose VMs the driver must not list
    #[arg(long, value_name = "FILE")]
    pub(super) foreign_class: Option<PathBuf>,
    /// A file with PersistentVolumes; the annotation "volume-id" is the ID that the driver must return, if any
    #[arg(long, value_name = "FILE")]
    pub(super) volumes: Option<PathBuf>,
    /// Prefix of the names of machines, before a random suffix
    #[arg(long, value_name = "NAME", default_value = "mcm-test")]
    pub(super) prefix: String,
    /// CA of the certificate of the driver, for https
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// Certificate for the driver
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub(super) cert_file: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub(super) key_file: Option<PathBuf>,
    /// Name in the certificate of the driver, if it is not the host
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,
    /// Allow http:// to other hosts: credentials are sent unencrypted
    #[arg(long)]
    pub(super) insecure: bool,
    /// Format of the report
    #[arg(short = 'o', long, value_enum, value_name = "text|json", default_value_t = OutputFormat::Text, hide_possible_values = true)]
    pub(super) output: OutputFormat,
}
