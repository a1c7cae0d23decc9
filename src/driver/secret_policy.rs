//! Restricts the credentials, files and hosts that the Secret of a class may use in the process that serves the class.
//!
//! Authors of classes and Secrets are trusted with their own cloud account, not with the identity, the files and the network
//! of the process.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use reqwest::Url;

use super::{code::Code, error::DriverError};
use mcm_api::{machine::MachineClass, syntax::is_subdomain};

/// Mount point of workload identity tokens in Gardener.
pub const GARDENER_FOLDER: &str = "/var/run/secrets/gardener.cloud/workload-identity";
/// In the list of namespaces: all of them.
pub const ALL_NAMESPACES: &str = "*";

/// The features that the operator of a process allows Secrets of classes to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPolicy {
    /// Namespaces whose classes may use the cloud credentials of the process; `*` means all.
    pub process_credentials: Vec<String>,
    /// Folders below which Secrets may name files.
    pub folders: Vec<PathBuf>,
    /// Folders in which Secrets may name files, but not those of their folders.
    pub flat_folders: Vec<PathBuf>,
    /// The process serves several namespaces. Each may name the files below the folder of its name in `folders`. Files directly in
    /// `folders` are credentials of the process.
    pub confines_files: bool,
    /// Hosts that Secrets may name in addition to the domains of their cloud.
    pub endpoints: Vec<AllowedEndpoint>,
    /// Secrets may switch the verification of certificates off for any host, and not only for `endpoints`. For a process with one
    /// tenant, whose Secrets its operator writes.
    pub allows_unverified_tls: bool,
}

impl Default for SecretPolicy {
    fn default() -> Self {
        Self {
            process_credentials: Vec::new(),
            folders: vec![GARDENER_FOLDER.into()],
            flat_folders: Vec::new(),
            confines_files: false,
            endpoints: Vec::new(),
            allows_unverified_tls: false,
        }
    }
}

impl SecretPolicy {
    /// The policy for the Secrets of a class: without the files of other namespaces, if there are several.
    #[must_use]
    pub fn for_class(&self, class: &MachineClass) -> Cow<'_, Self> {
        if !self.confines_files {
            return Cow::Borrowed(self);
        }
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let is_folder = is_subdomain(namespace) && !namespace.contains('.');
        let folders = self.folders.iter().filter(|_| is_folder).map(|folder| folder.join(namespace)).collect();
        let flat_folders = if self.serves(namespace) { self.folders.clone() } else { Vec::new() };
        Cow::Owned(Self { folders, flat_folders, ..self.clone() })
    }

    /// Classes of a namespace may use credentials of the process.
    fn serves(&self, namespace: &str) -> bool {
        self.process_credentials.iter().any(|one| one == ALL_NAMESPACES || one == namespace)
    }

    /// Checks that a class whose Secrets hold no credentials may use those of the process. `needed` lists the keys that its
    /// Secret could have.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class names a Secret for credentials, or its namespace is not allowed.
    pub fn check_process_credentials(&self, class: &MachineClass, needed: &str) -> Result<(), DriverError> {
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let is_allowed = self.serves(namespace);
        let refuse = |text: String| Err(DriverError::new(Code::InvalidArgument, text));
        match (&class.credentials_secret_ref, &class.secret_ref) {
            (Some(secret), _) => refuse(format!("Secret {namespace}/{} has no {needed}", secret.name)),
            (None, _) if is_allowed => Ok(()),
            (None, secret) => {
                let missing = match secret {
                    Some(secret) => format!("Secret {namespace}/{} has no {needed}", secret.name),
                    None => format!("the class names no Secret with {needed}"),
                };
                refuse(format!(
                    "{missing}, and --process-credentials-namespaces does not allow namespace {namespace} to use the \
                     credentials of the process"
                ))
            }
        }
    }

    /// Checks a URL in a Secret: https at one of the domains of its cloud, or an allowed endpoint. `key` is its key.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is neither.
    pub fn check_url(&self, key: &str, url: &str, domains: &[&str]) -> Result<(), DriverError> {
        let url = Url::parse(url).ok().filter(|url| url.username().is_empty() && url.password().is_none());
        let is_allowed = |url: Url| {
            let host = url.host_str().unwrap_or_default();
            let is_of_cloud = domains.iter().any(|domain| is_below(host, domain));
            (url.scheme() == "https" && url.port().is_none() && is_of_cloud)
                || self.endpoints.iter().any(|endpoint| endpoint.includes(&url))
        };
        if url.is_some_and(is_allowed) {
            return Ok(());
        }
        let message = format!(
            "{key} in the Secret of the class is not an https URL of {}: allow other hosts with \
             --allowed-cloud-endpoints",
            domains.join(", ")
        );
        Err(DriverError::new(Code::InvalidArgument, message))
    }

    /// Checks the URL of a cloud that has no domain, because each installation of it is another host, and its TLS options. It may
    /// be https anywhere but on this host, or an allowed endpoint. The certificate of an https host proves that it is no part of a
    /// private network, so a host without that proof has to be allowed. `key` is the key of the URL, `unverified` the option that
    /// switches the verification of certificates off, if it is set.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is neither.
    pub fn check_own_url(&self, key: &str, url: &str, unverified: Option<&str>) -> Result<Url, DriverError> {
        let refuse = |text: String| Err(DriverError::new(Code::InvalidArgument, text));
        let parsed = Url::parse(url).ok().filter(|url| {
            let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
            is_plain && url.fragment().is_none() && url.has_host()
        });
        let is_allowed = |url: &Url| self.endpoints.iter().any(|endpoint| endpoint.includes(url));
        let Some(url) = parsed.filter(|url| url.scheme() == "https" || is_allowed(url)) else {
            return refuse(format!(
                "{key} in the Secret of the class is not an https URL such as https://api.example.com/path: hosts without TLS \
                 have to be allowed with --allowed-cloud-endpoints"
            ));
        };
        if is_allowed(&url) {
            return Ok(url);
        }
        if is_of_process(&url) {
            return refuse(format!(
                "{key} in the Secret of the class is an address of the host of mcm or of its link: it has to be allowed with \
                 --allowed-cloud-endpoints"
            ));
        }
        match unverified.filter(|_| !self.allows_unverified_tls) {
            Some(option) => refuse(format!(
                "{option} in the Secret of the class switches the verification of certificates off: then the host of {key} has \
                 to be allowed with --allowed-cloud-endpoints"
            )),
            None => Ok(url),
        }
    }

    /// Checks the path of a file in a Secret, without looking at any file. `key` is its key.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not below an allowed folder.
    pub fn check_file(&self, key: &str, path: &str) -> Result<PathBuf, DriverError> {
        let path = Path::new(path);
        let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let is_below = |folder: &PathBuf| path.starts_with(folder) && path != folder.as_path();
        let is_in = |folder: &PathBuf| path.parent() == Some(folder);
        if is_plain && (self.folders.iter().any(is_below) || self.flat_folders.iter().any(is_in)) {
            return Ok(path.to_owned());
        }
        if self.folders.is_empty() {
            let message = format!(
                "{key} in the Secret of the class is a file, and the operator allows this namespace no files: set \
                 --credential-files-folder, or credentialFilesFolder of the cell"
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        let remedy = if self.confines_files {
            "each namespace has the folder of its name, and only namespaces in --process-credentials-namespaces may use the \
             files beside these folders"
        } else {
            "allow other folders with --credential-files-folder"
        };
        let message = format!("{key} in the Secret of the class is not a path below {}: {remedy}", folders.join(", "));
        Err(DriverError::new(Code::InvalidArgument, message))
    }
}

/// Hosts that Secrets may name: `[https://|http://]HOST[:PORT]`. Without a scheme it means https, without a port any port; a
/// host that begins with `*.` includes all hosts below a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedEndpoint {
    is_tls: bool,
    host: String,
    port: Option<u16>,
}

impl AllowedEndpoint {
    fn includes(&self, url: &Url) -> bool {
        let scheme = if self.is_tls { "https" } else { "http" };
        let host = url.host_str().unwrap_or_default();
        let is_host = match self.host.strip_prefix("*.") {
            Some(domain) => host != domain && is_below(host, domain),
            None => host == self.host,
        };
        url.scheme() == scheme && is_host && self.port.is_none_or(|port| Some(port) == url.port_or_known_default())
    }
}

/// Text that describes no [`AllowedEndpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be HOST, HOST:PORT, *.DOMAIN, or one of these after http:// if TLS is not needed")]
pub struct InvalidEndpoint;

impl FromStr for AllowedEndpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(InvalidEndpoint),
            None => (true, text),
        };
        let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| InvalidEndpoint)?)),
            None => (rest, None),
        };
        // As the host of a URL it has one spelling.
        let name = host.strip_prefix("*.").unwrap_or(host);
        let url = Url::parse(&format!("https://{name}/")).map_err(|_| InvalidEndpoint)?;
        let is_host = url.path() == "/" && url.query().is_none() && url.username().is_empty() && url.port().is_none();
        let spelled = url.host_str().filter(|spelled| is_host && !spelled.contains('*')).ok_or(InvalidEndpoint)?;
        let host = if host.starts_with("*.") { format!("*.{spelled}") } else { spelled.to_owned() };
        Ok(Self { is_tls, host, port })
    }
}

/// True for a URL that leads to the host of this process, or to neighbours on its link, such as the metadata service of its cloud.
fn is_of_process(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_own_v4 = |ip: Ipv4Addr| {
        ip.octets()[0] == 0 || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
    };
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(ip)) => is_own_v4(ip),
        Ok(IpAddr::V6(ip)) => {
            let is_own = ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast();
            is_own || ip.to_ipv4().is_some_and(is_own_v4)
        }
        Err(_) => is_below(host.trim_end_matches('.'), "localhost"),
    }
}

/// A host is a domain or below it.
fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn policy(namespaces: &[&str], endpoints: &[&str]) -> SecretPolicy {
        SecretPolicy {
            process_credentials: namespaces.iter().map(|one| (*one).to_owned()).collect(),
            endpoints: endpoints.iter().map(|one| one.parse().unwrap()).collect(),
            ..SecretPolicy::default()
        }
    }

    fn class(changes: &Value) -> MachineClass {
        let mut class =
            json!({ "metadata": { "name": "c", "namespace": "ns" }, "provider": "AWS", "providerSpec": {} });
        class.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(class).unwrap()
    }

    #[rstest]
    #[case::by_default(&[], json!({}), Some("the class names no Secret with KEYS, and --process"))]
    #[case::listed(&["a", "ns"], json!({}), None)]
    #[case::all(&["*"], json!({}), None)]
    #[case::with_user_data(&["ns"], json!({ "secretRef": { "name": "ud" } }), None)]
    #[case::another(&["other"], json!({ "secretRef": { "name": "ud" } }), Some("Secret ns/ud has no KEYS, and --process"))]
    #[case::a_named_secret(&["*"], json!({ "credentialsSecretRef": { "name": "cloud" } }), Some("Secret ns/cloud has no KEYS"))]
    fn credentials_of_the_process_are_for_classes_that_name_none_in_listed_namespaces(
        #[case] namespaces: &[&str],
        #[case] changes: Value,
        #[case] expected: Option<&str>,
    ) {
        match (policy(namespaces, &[]).check_process_credentials(&class(&changes), "KEYS"), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(text)) => {
                assert!(error.code == Code::InvalidArgument && error.message.starts_with(text), "{error}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[rstest]
    #[case("https://ec2.eu-west-1.amazonaws.com", &[], true)]
    #[case("https://ec2.eu-west-1.amazonaws.com/path", &[], true)]
    #[case::plain("http://ec2.eu-west-1.amazonaws.com", &[], false)]
    #[case::other_port("https://ec2.eu-west-1.amazonaws.com:8443", &[], false)]
    #[case::looks_alike("https://evilamazonaws.com", &[], false)]
    #[case::below_another("https://amazonaws.com.evil.example", &[], false)]
    #[case::user("https://amazonaws.com@evil.example", &[], false)]
    #[case::user("https://x:y@ec2.amazonaws.com", &[], false)]
    #[case::metadata("http://169.254.169.254/latest", &[], false)]
    #[case::file("file:///etc/passwd", &["*.example.com"], false)]
    #[case::no_url("ec2", &[], false)]
    #[case::allowed("https://ec2.example.com:8443/x", &["ec2.example.com"], true)]
    #[case::allowed_port("https://ec2.example.com:8443", &["ec2.example.com:8443"], true)]
    #[case::not_that_port("https://ec2.example.com:8444", &["ec2.example.com:8443"], false)]
    #[case::usual_port("https://ec2.example.com", &["ec2.example.com:443"], true)]
    #[case::spelling("https://EC2.example.com", &["ec2.EXAMPLE.com"], true)]
    #[case::below("https://a.b.example.com", &["*.example.com"], true)]
    #[case::domain_itself("https://example.com", &["*.example.com"], false)]
    #[case::not_plain("http://ec2.example.com", &["ec2.example.com"], false)]
    #[case::plain("http://127.0.0.1:4566", &["http://127.0.0.1"], true)]
    #[case::another_spelling_of_an_address("http://127.1:4566", &["http://127.0.0.1"], true)]
    #[case::ipv6("http://[::1]:4566", &["http://[::1]"], true)]
    fn a_secret_names_hosts_of_its_cloud_and_allowed_ones(
        #[case] url: &str,
        #[case] endpoints: &[&str],
        #[case] is_allowed: bool,
    ) {
        let found = policy(&[], endpoints).check_url("endpointURL", url, &["amazonaws.com"]);
        assert_eq!(found.is_ok(), is_allowed, "{found:?}");
        assert!(found.err().is_none_or(|error| !error.message.contains(url) && error.code == Code::InvalidArgument));
    }

    #[rstest]
    #[case("https://api.metal.example.com/metal", &[], true)]
    #[case::port("https://api.metal.example.com:8443", &[], true)]
    #[case::private_address("https://10.0.0.1:6443/path", &[], true)]
    #[case::plain("http://api.metal.example.com/metal", &[], false)]
    #[case::allowed("http://127.0.0.1:8080/metal", &["http://127.0.0.1"], true)]
    #[case::metadata("http://169.254.169.254/latest", &["http://127.0.0.1"], false)]
    #[case::metadata_with_tls("https://169.254.169.254/latest", &[], false)]
    #[case::loopback("https://127.0.0.1:10250", &[], false)]
    #[case::loopback_allowed("https://127.0.0.1:10250", &["127.0.0.1"], true)]
    #[case::loopback_spelled_otherwise("https://2130706433/", &[], false)]
    #[case::loopback_v6("https://[::1]:10250", &[], false)]
    #[case::loopback_v4_in_v6("https://[::ffff:127.0.0.1]:10250", &[], false)]
    #[case::link_local_v6("https://[fe80::1]", &[], false)]
    #[case::unspecified("https://0.0.0.0:10250", &[], false)]
    #[case::name("https://LOCALHOST:10250", &[], false)]
    #[case::name_with_a_dot("https://localhost.:10250", &[], false)]
    #[case::name_below("https://a.localhost", &[], false)]
    #[case::name_that_looks_alike("https://mylocalhost", &[], true)]
    #[case::user("https://x:y@api.metal.example.com", &[], false)]
    #[case::query("https://api.metal.example.com/?a=b", &[], false)]
    #[case::no_host("file:///etc/passwd", &[], false)]
    #[case::no_url("not a URL", &[], false)]
    fn a_cloud_without_a_domain_is_any_https_host(
        #[case] url: &str,
        #[case] endpoints: &[&str],
        #[case] is_allowed: bool,
    ) {
        let found = policy(&[], endpoints).check_own_url("metalAPIURL", url, None);
        assert_eq!(found.is_ok(), is_allowed, "{found:?}");
        assert!(found.err().is_none_or(|error| !error.message.contains(url) && error.code == Code::InvalidArgument));
    }

    #[rstest]
    #[case::name("https://keystone.example.com", &[], false, false)]
    #[case::allowed("https://keystone.example.com", &["keystone.example.com"], false, true)]
    #[case::allowed_at_another_port("https://keystone.example.com", &["keystone.example.com:5000"], false, false)]
    #[case::private_address("https://10.0.0.1:5000", &[], false, false)]
    #[case::one_tenant("https://10.0.0.1:5000", &[], true, true)]
    #[case::loopback_of_one_tenant("https://127.0.0.1:5000", &[], true, false)]
    fn a_host_whose_certificate_is_not_verified_has_to_be_allowed(
        #[case] url: &str,
        #[case] endpoints: &[&str],
        #[case] allows_unverified_tls: bool,
        #[case] is_allowed: bool,
    ) {
        let policy = SecretPolicy { allows_unverified_tls, ..policy(&[], endpoints) };
        let found = policy.check_own_url("authURL", url, Some("insecure"));
        assert_eq!(found.is_ok(), is_allowed, "{found:?}");
        assert!(found.err().is_none_or(|error| error.message.contains("--allowed-cloud-endpoints")));
    }

    #[rstest]
    #[case("")]
    #[case("ftp://x")]
    #[case("x/y")]
    #[case("x:port")]
    #[case("user@x")]
    #[case("*")]
    #[case("a.*.example.com")]
    fn an_endpoint_is_a_host(#[case] text: &str) {
        assert_eq!(text.parse::<AllowedEndpoint>(), Err(InvalidEndpoint));
    }

    #[rstest]
    #[case("/var/run/secrets/gardener.cloud/workload-identity/token", true)]
    #[case("/var/run/secrets/gardener.cloud/workload-identity/a/b", true)]
    #[case::folder("/var/run/secrets/gardener.cloud/workload-identity", false)]
    #[case::looks_alike("/var/run/secrets/gardener.cloud/workload-identity-2/token", false)]
    #[case::up("/var/run/secrets/gardener.cloud/workload-identity/../../kubernetes.io/serviceaccount/token", false)]
    #[case::relative("token", false)]
    #[case::elsewhere("/var/run/secrets/kubernetes.io/serviceaccount/token", false)]
    #[case::device("/dev/zero", false)]
    #[case("", false)]
    fn a_secret_names_files_below_allowed_folders(#[case] path: &str, #[case] is_allowed: bool) {
        assert_eq!(SecretPolicy::default().check_file("file", path).is_ok(), is_allowed);
    }

    #[rstest]
    #[case::one_namespace(false, &[], "token", true)]
    #[case::one_namespace_below(false, &[], "other/token", true)]
    #[case::file_of_the_process(true, &[], "token", false)]
    #[case::file_of_the_process_for_another(true, &["other"], "token", false)]
    #[case::file_of_the_process_for_a_listed_one(true, &["ns"], "token", true)]
    #[case::file_of_the_process_for_all(true, &["*"], "token", true)]
    #[case::own(true, &[], "ns/token", true)]
    #[case::own_below(true, &[], "ns/aws/token", true)]
    #[case::folder_itself(true, &["ns"], "ns", true)]
    #[case::of_another(true, &[], "other/token", false)]
    #[case::of_another_for_a_listed_one(true, &["ns", "other"], "other/token", false)]
    #[case::of_another_for_all(true, &["*"], "other/token", false)]
    #[case::of_one_that_looks_alike(true, &["*"], "ns-2/token", false)]
    #[case::up(true, &["*"], "ns/../other/token", false)]
    fn of_several_namespaces_each_names_its_files(
        #[case] confines_files: bool,
        #[case] namespaces: &[&str],
        #[case] file: &str,
        #[case] is_allowed: bool,
    ) {
        let policy = SecretPolicy { confines_files, ..policy(namespaces, &[]) };
        let checked = policy.for_class(&class(&json!({}))).check_file("file", &format!("{GARDENER_FOLDER}/{file}"));
        match checked {
            Ok(_) => assert!(is_allowed),
            Err(error) => {
                assert!(!is_allowed && error.message.contains("--process-credentials-namespaces"), "{error}");
            }
        }
    }

    #[rstest]
    #[case::none(json!({ "metadata": {} }))]
    #[case::up(json!({ "metadata": { "namespace": ".." } }))]
    #[case::here(json!({ "metadata": { "namespace": "." } }))]
    #[case::path(json!({ "metadata": { "namespace": "ns/other" } }))]
    #[case::root(json!({ "metadata": { "namespace": "/" } }))]
    fn a_namespace_that_is_no_name_of_a_folder_has_no_files(#[case] changes: Value) {
        let policy = SecretPolicy { confines_files: true, ..policy(&[], &[]) };
        let policy = policy.for_class(&class(&changes)).into_owned();
        assert_eq!((policy.folders, policy.flat_folders), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_refused_path_says_nothing_about_files() {
        let text = |path| SecretPolicy::default().check_file("file", path).unwrap_err().message;
        assert_eq!(text("/etc/passwd"), text("/etc/no-such-file"));
    }
}
