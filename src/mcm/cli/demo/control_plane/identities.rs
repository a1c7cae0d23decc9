//! Certificates and keys of a control plane, in files that only their owner reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::json;

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

/// Writes them to a folder. The API server listens on this port of 127.0.0.1.
pub fn write(folder: &Path, port: u16) -> Result<ControlPlaneIdentities> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name = named("mcm-demo-ca", None);
    let key = KeyPair::generate()?;
    let ca = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);

    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name = named("kube-apiserver", None);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = KeyPair::generate()?;
    let server = server.signed_by(&server_key, &issuer)?.pem();

    let mut administrator = CertificateParams::new(Vec::new())?;
    administrator.distinguished_name = named("mcm-demo", Some(ADMINISTRATORS));
    administrator.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let administrator_key = KeyPair::generate()?;
    let administrator = administrator.signed_by(&administrator_key, &issuer)?.pem();

    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let service_accounts = KeyPair::generate()?;
    let ca = file("ca.crt", &ca)?;
    let certificate = file("administrator.crt", &administrator)?;
    let key = file("administrator.key", &administrator_key.serialize_pem())?;
    Ok(ControlPlaneIdentities {
        server: file("server.crt", &server)?,
        server_key: file("server.key", &server_key.serialize_pem())?,
        service_accounts: file("service-accounts.pub", &service_accounts.public_key_pem())?,
        service_accounts_key: file("service-accounts.key", &service_accounts.serialize_pem())?,
        kubeconfig: file("kubeconfig", &kubeconfig(port, &ca, &certificate, &key))?,
        ca,
    })
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
fn kubeconfig(port: u16, ca: &Path, certificate: &Path, key: &Path) -> String {
    let server = format!("https://127.0.0.1:{port}");
    let user = json!({"client-certificate": certificate, "client-key": key});
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
