//! Certificates and keys of a control plane, in files that only their owner reads.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};

/// The group with all rights.
const ADMINISTRATORS: &str = "system:masters";

/// The files, by what they are for.
pub struct ControlPlaneIdentities {
    /// CA of all certificates.
    pub ca: PathBuf,
    /// Certificate of the API server.
    pub server: PathBuf,
    /// Key of the API server.
    pub server_key: PathBuf,
    /// Public key of the tokens of service accounts.
    pub service_accounts: PathBuf,
    /// Key that signs the tokens of service accounts.
    pub service_accounts_key: PathBuf,
    /// Kubeconfig of an administrator.
    pub kubeconfig: PathBuf,
}

/// The files of an embedded API server, and the token of its administrator.
pub struct EmbeddedIdentity {
    /// Certificate of the API server.
    pub server: PathBuf,
    /// Key of the API server.
    pub server_key: PathBuf,
    /// Kubeconfig of an administrator.
    pub kubeconfig: PathBuf,
    /// Token of the administrator.
    pub token: String,
}

/// Writes them to a folder. The API server listens on this port of 127.0.0.1.
pub fn write(folder: &Path, port: u16) -> Result<ControlPlaneIdentities> {
    let authority = DemoAuthority::create()?;
    let (server, server_key) = authority.server()?;

    let mut administrator = CertificateParams::new(Vec::new())?;
    administrator.distinguished_name = named("mcm-demo", Some(ADMINISTRATORS));
    administrator.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let administrator_key = KeyPair::generate()?;
    let administrator = administrator.signed_by(&administrator_key, &authority.issuer)?.pem();

    let file = |name: &str, text: &str| write_private(&folder.join(name), text);
    let service_accounts = KeyPair::generate()?;
    let ca = file("ca.crt", &authority.certificate)?;
    let certificate = file("administrator.crt", &administrator)?;
    let key = file("administrator.key", &administrator_key.serialize_pem())?;
    let user = json!({"client-certificate": certificate, "client-key": key});
    Ok(ControlPlaneIdentities {
        server: file("server.crt", &server)?,
        server_key: file("server.key", &server_key)?,
        service_accounts: file("service-accounts.pub", &service_accounts.public_key_pem())?,
        service_accounts_key: file("service-accounts.key", &service_accounts.serialize_pem())?,
        kubeconfig: file("kubeconfig", &kubeconfig(port, &ca, &user))?,
        ca,
    })
}

/// Writes those of an embedded API server to a folder. It listens on this port of 127.0.0.1.
pub fn write_embedded(folder: &Path, port: u16) -> Result<EmbeddedIdentity> {
    let authority = DemoAuthority::create()?;
    let (server, server_key) = authority.server()?;
    let token = rand::random::<[u8; 32]>().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let file = |name: &str, text: &str| write_private(&folder.join(name), text);
    let ca = file("ca.crt", &authority.certificate)?;
    Ok(EmbeddedIdentity {
        server: file("server.crt", &server)?,
        server_key: file("server.key", &server_key)?,
        kubeconfig: file("kubeconfig", &kubeconfig(port, &ca, &json!({"token": token})))?,
        token,
    })
}

/// A certificate authority for one demo.
struct DemoAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl DemoAuthority {
    fn create() -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = named("mcm-demo-ca", None);
        let key = KeyPair::generate()?;
        let certificate = authority.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(authority, key) })
    }

    /// Certificate and key of the API server.
    fn server(&self) -> Result<(String, String)> {
        let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        server.distinguished_name = named("kube-apiserver", None);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok((server.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// Writes a new file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<PathBuf> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    Ok(path.to_owned())
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished
}

/// JSON, which is YAML.
fn kubeconfig(port: u16, ca: &Path, user: &Value) -> String {
    let server = format!("https://127.0.0.1:{port}");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": "demo", "user": user}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "current-context": "demo",
    });
    config.to_string()
}
