//! The kubeconfig in a Secret, as far as it describes a connection without programs and files of this process.

use mcm_api::decode::{self, YamlError, YamlLimits};
use serde::{Deserialize, de::IgnoredAny};

/// A kubeconfig. Keys that are not here have no influence on a connection, or are of newer versions.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Kubeconfig {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Clone, Default, Deserialize)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Cluster {
    pub server: Option<String>,
    pub certificate_authority_data: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct User {
    pub token: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub client_certificate_data: Option<String>,
    pub client_key_data: Option<String>,
    #[serde(rename = "as")]
    pub impersonated: Option<String>,
    pub as_groups: Option<Vec<String>>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<String>,
    as_uid: Option<String>,
    as_user_extra: Option<IgnoredAny>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
}

/// The cluster, the user and the namespace of the current context.
pub(crate) struct Current {
    pub cluster: Cluster,
    pub user: User,
    pub namespace: String,
}

const DEFAULT_NAMESPACE: &str = "default";

impl Current {
    /// Reads a kubeconfig in YAML or JSON.
    ///
    /// # Errors
    /// The reason why it cannot be used, without any of its values but names of its keys and entries.
    pub fn from_kubeconfig(text: &str) -> Result<Self, String> {
        let config: Kubeconfig = decode::yaml(text, YamlLimits::KUBECONFIG).map_err(|error| match &error {
            YamlError::TooLarge { .. } => format!("is not a kubeconfig: it has {error}"),
            // The text of the error may quote a credential.
            YamlError::Invalid(_) => match error.place() {
                Some((line, column)) => format!("is not a kubeconfig: see line {line}, column {column}"),
                None => "is not a kubeconfig".to_owned(),
            },
        })?;
        let current = filled(config.current_context).ok_or("has no current-context")?;
        let mut contexts = config.contexts.into_iter().flatten();
        let context = contexts.find(|one| one.name == current).and_then(|one| one.context);
        let context = context.ok_or("has no context with the name of its current-context")?;
        let (cluster, user) = (filled(context.cluster), filled(context.user));
        let cluster = config.clusters.into_iter().flatten().find(|one| Some(&one.name) == cluster.as_ref());
        let cluster = cluster.and_then(|one| one.cluster).ok_or("has no cluster for its current context")?;
        let user = match user {
            None => User::default(),
            Some(name) => {
                let found = config.users.into_iter().flatten().find(|one| one.name == name);
                found.ok_or("has no user for its current context")?.user.unwrap_or_default()
            }
        };
        let namespace = filled(context.namespace).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let current = Self { cluster, user, namespace };
        match current.refused().or_else(|| current.contradiction().map(str::to_owned)) {
            Some(reason) => Err(reason),
            None => Ok(current),
        }
    }

    /// A key that would run a program, read a file, or lead elsewhere.
    fn refused(&self) -> Option<String> {
        let Self { cluster, user, .. } = self;
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let unsafe_keys = [
            ("exec", user.exec.is_some(), "mcm runs no programs of kubeconfigs: use token or client-certificate-data"),
            ("auth-provider", user.auth_provider.is_some(), "use token or client-certificate-data"),
            ("tokenFile", is_set(&user.token_file), "mcm reads no files of kubeconfigs: use token"),
            ("client-certificate", is_set(&user.client_certificate), "use client-certificate-data"),
            ("client-key", is_set(&user.client_key), "use client-key-data"),
            ("certificate-authority", is_set(&cluster.certificate_authority), "use certificate-authority-data"),
            ("proxy-url", is_set(&cluster.proxy_url), "mcm uses the proxy of its environment"),
            ("tls-server-name", is_set(&cluster.tls_server_name), "use the name in the certificate as the host"),
            ("as-uid", is_set(&user.as_uid), "use as and as-groups"),
            ("as-user-extra", user.as_user_extra.is_some(), "use as and as-groups"),
        ];
        let found = unsafe_keys.into_iter().find(|(_, is_there, _)| *is_there);
        found.map(|(key, _, hint)| format!("has {key}, which is refused: {hint}"))
    }

    /// Keys that exclude each other, or need each other.
    fn contradiction(&self) -> Option<&'static str> {
        let Self { cluster, user, .. } = self;
        let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let is_insecure = cluster.insecure_skip_tls_verify == Some(true);
        let contradictions = [
            (
                has(&user.token) && (has(&user.username) || has(&user.password)),
                "has a token and a user name or password",
            ),
            (
                has(&user.client_certificate_data) != has(&user.client_key_data),
                "has only one of client-certificate-data and client-key-data",
            ),
            (
                is_insecure && has(&cluster.certificate_authority_data),
                "has certificate-authority-data and insecure-skip-tls-verify",
            ),
            (
                !has(&user.impersonated) && user.as_groups.as_ref().is_some_and(|all| !all.is_empty()),
                "has as-groups without as",
            ),
        ];
        contradictions.into_iter().find(|(is_there, _)| *is_there).map(|(_, text)| text)
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn config(cluster: Value, user: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [
                {"name": "other", "context": {"cluster": "other", "user": "other"}},
                {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}},
            ],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        })
    }

    fn server() -> Value {
        json!({"server": "https://api.example.com"})
    }

    fn problem(config: &Value) -> String {
        Current::from_kubeconfig(&config.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn the_current_context_decides() {
        let current = Current::from_kubeconfig(&config(server(), json!({"token": "t"})).to_string()).ok().unwrap();
        assert_eq!(
            (current.cluster.server.as_deref(), current.user.token.as_deref()),
            (Some("https://api.example.com"), Some("t"))
        );
        assert_eq!(current.namespace, "team");
        let yaml = "current-context: c\ncontexts:\n- name: c\n  context: {cluster: k}\nclusters:\n- name: k\n  cluster:\n    server: https://a\nusers: null\n";
        assert_eq!(Current::from_kubeconfig(yaml).ok().unwrap().namespace, "default");
    }

    #[rstest]
    #[case("exec", json!({"exec": {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}}), json!({}))]
    #[case("auth-provider", json!({"auth-provider": {"name": "gcp"}}), json!({}))]
    #[case("tokenFile", json!({"tokenFile": "/var/run/secrets/token"}), json!({}))]
    #[case("client-certificate", json!({"client-certificate": "/tmp/a"}), json!({}))]
    #[case("client-key", json!({"client-key": "/tmp/a"}), json!({}))]
    #[case("as-uid", json!({"as": "a", "as-uid": "1"}), json!({}))]
    #[case("as-user-extra", json!({"as": "a", "as-user-extra": {"a": ["b"]}}), json!({}))]
    #[case("certificate-authority", json!({}), json!({"certificate-authority": "/tmp/a"}))]
    #[case("proxy-url", json!({}), json!({"proxy-url": "http://10.0.0.1"}))]
    #[case("tls-server-name", json!({}), json!({"tls-server-name": "a"}))]
    fn programs_files_and_detours_are_refused(#[case] key: &str, #[case] user: Value, #[case] mut cluster: Value) {
        cluster["server"] = "https://api.example.com".into();
        let found = problem(&config(cluster, user));
        assert!(found.starts_with(&format!("has {key}, which is refused")), "{found}");
    }

    #[rstest]
    #[case(json!({"token": "t", "username": "u", "password": "p"}), json!({}), "has a token and a user name")]
    #[case(json!({"client-certificate-data": "YQ=="}), json!({}), "has only one of")]
    #[case(json!({"as-groups": ["g"]}), json!({}), "has as-groups without as")]
    #[case(json!({}), json!({"insecure-skip-tls-verify": true, "certificate-authority-data": "YQ=="}), "insecure-skip-tls-verify")]
    fn keys_that_contradict_are_refused(#[case] user: Value, #[case] mut cluster: Value, #[case] expected: &str) {
        cluster["server"] = "https://api.example.com".into();
        let found = problem(&config(cluster, user));
        assert!(found.contains(expected), "{found}");
    }

    #[rstest]
    #[case::no_context("current-context", "", "no current-context")]
    #[case::unknown_context("current-context", "x", "no context with the name")]
    #[case::no_cluster("clusters", "", "no cluster")]
    #[case::no_user("users", "", "no user")]
    fn an_incomplete_kubeconfig_is_refused(#[case] key: &str, #[case] value: &str, #[case] expected: &str) {
        let mut config = config(server(), json!({}));
        config[key] = if key == "current-context" { value.into() } else { json!([]) };
        assert!(problem(&config).contains(expected), "{}", problem(&config));
    }

    #[rstest]
    #[case("users: [{name: u, user: {token: {hunter2-hunter2: 1}}}]\n")]
    #[case("hunter2-hunter2")]
    #[case("users:\n- hunter2-hunter2: [\n")]
    fn a_text_that_is_not_a_kubeconfig_is_not_quoted(#[case] text: &str) {
        let error = Current::from_kubeconfig(text).err().unwrap();
        assert!(error.starts_with("is not a kubeconfig") && !error.contains("hunter2"), "{error}");
    }

    /// Much less than quadratic time, in a debug build.
    const SOON: Duration = Duration::from_secs(60);

    #[rstest]
    #[case::lists(format!("a: {}", "[".repeat(1_000_000)))]
    #[case::closed_lists(format!("a: {}{}", "[".repeat(500_000), "]".repeat(500_000)))]
    #[case::maps("{a: ".repeat(250_000))]
    #[case::users(format!("users: [{{name: u, user: {{exec: {}", "[".repeat(500_000)))]
    #[case::block_lists("- - -".repeat(200_000))]
    #[case::quotes("\"".repeat(1_000_000))]
    fn a_hostile_text_is_refused_at_once(#[case] text: String) {
        let began = Instant::now();
        assert!(Current::from_kubeconfig(&text).is_err());
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }

    #[test]
    fn a_kubeconfig_has_a_limit_of_size() {
        let error = Current::from_kubeconfig(&"a".repeat(2 << 20)).err().unwrap();
        assert_eq!(error, "is not a kubeconfig: it has more than 1024 KiB");
    }
}
