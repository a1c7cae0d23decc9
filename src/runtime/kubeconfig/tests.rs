use std::fs;

use rstest::rstest;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

const TOKEN: &str = "hush-hush";

/// A kubeconfig of one cluster, with additional fields of its cluster and user.
fn kubeconfig(server: &str, cluster: &str, user: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{{"name": "it", "context": {{"cluster": "it", "user": "it"}}}}],
            "clusters": [{{"name": "it", "cluster": {{"server": "{server}" {cluster}}}}}],
            "users": [{{"name": "it", "user": {{{user}}}}}]}}"#
    )
}

struct File {
    path: PathBuf,
    _folder: TempDir,
}

fn file(text: &str) -> File {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, text).unwrap();
    File { path, _folder: folder }
}

async fn load(text: &str) -> Result<ProcessClusters, StartError> {
    let file = file(text);
    ProcessClusters::load(
        &ControlKubeconfig::SameAsTarget,
        &TargetKubeconfig::Path(file.path),
        KubeconfigFallback::None,
    )
    .await
}

#[tokio::test]
async fn an_empty_control_cluster_is_the_target() {
    let clusters = load(&kubeconfig("https://one.example", "", "")).await.unwrap();
    assert_eq!(clusters.control.config.cluster_url, "https://one.example");
    assert_eq!(clusters.target.unwrap().config.cluster_url, "https://one.example");
}

#[tokio::test]
async fn control_and_target_may_differ() {
    let (one, two) =
        (file(&kubeconfig("https://one.example", "", "")), file(&kubeconfig("https://two.example", "", "")));
    let clusters = ProcessClusters::load(
        &ControlKubeconfig::Path(one.path),
        &TargetKubeconfig::Path(two.path),
        KubeconfigFallback::LocalKubeconfig,
    )
    .await
    .unwrap();
    assert_eq!(clusters.control.config.cluster_url, "https://one.example");
    assert_eq!(clusters.target.unwrap().config.cluster_url, "https://two.example");
}

#[tokio::test]
async fn without_a_target_there_is_only_the_control_cluster() {
    let one = file(&kubeconfig("https://one.example", "", ""));
    let control = ControlKubeconfig::Path(one.path);
    let clusters = ProcessClusters::load(&control, &TargetKubeconfig::None, KubeconfigFallback::None).await.unwrap();
    assert!(clusters.target.is_none());

    let error =
        ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &TargetKubeconfig::None, KubeconfigFallback::None)
            .await;
    assert!(matches!(error, Err(StartError::NoControlCluster)));
}

#[rstest]
#[case("", false)]
#[case(r#", "insecure-skip-tls-verify": true"#, true)]
#[tokio::test]
async fn certificates_are_checked_unless_the_file_says_otherwise(#[case] cluster: &str, #[case] is_unchecked: bool) {
    let clusters = load(&kubeconfig("https://one.example", cluster, "")).await.unwrap();
    assert_eq!(clusters.control.config.accept_invalid_certs, is_unchecked);
}

#[tokio::test]
async fn the_client_never_repeats_a_request_on_its_own() {
    let clusters = load(&kubeconfig("https://one.example", "", "")).await.unwrap();
    assert!(!clusters.control.config.default_retry);
}

#[rstest]
#[case("user: {token: hush-hush", "not the YAML of a kubeconfig")]
#[case("users: hush-hush", "not the YAML of a kubeconfig")]
#[case("", "failed to determine current context")]
#[case("current-context: it", "failed to load current context: it")]
#[tokio::test]
async fn a_broken_file_is_named_and_never_quoted(#[case] text: &str, #[case] cause: &str) {
    let error = load(text).await.unwrap_err().to_string();
    assert!(error.contains("/config (--target-kubeconfig)"), "{error}");
    assert!(error.contains(cause), "{error}");
    assert!(!error.contains(TOKEN), "{error}");
}

/// A kubeconfig of two contexts, the first of which is the current one.
fn of_two_contexts() -> String {
    let named = |name: &str| {
        (
            format!(r#"{{"name": "{name}", "context": {{"cluster": "{name}", "user": "{name}"}}}}"#),
            format!(r#"{{"name": "{name}", "cluster": {{"server": "https://{name}.example"}}}}"#),
        )
    };
    let [(one, first), (two, second)] = ["one", "two"].map(named);
    format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "one", "contexts": [{one}, {two}], "clusters": [{first}, {second}]}}"#
    )
}

async fn chosen(choice: ContextChoice) -> Result<ProcessClusters, StartError> {
    let file = file(&of_two_contexts());
    let (control, fallback) = (ControlKubeconfig::Named(file.path.clone()), KubeconfigFallback::LocalKubeconfig);
    ProcessClusters::load_chosen(&control, &TargetKubeconfig::SameAsControl, fallback, &choice).await
}

#[rstest]
#[case::current(None, "one")]
#[case::chosen(Some("two"), "two")]
#[tokio::test]
async fn a_context_is_chosen_for_both_clusters(#[case] context: Option<&str>, #[case] expected: &str) {
    let choice = ContextChoice { context: context.map(str::to_owned), ..ContextChoice::default() };
    let clusters = chosen(choice).await.unwrap();
    assert_eq!(clusters.control.context.as_deref(), Some(expected));
    let server = format!("https://{expected}.example/");
    assert_eq!(clusters.control.config.cluster_url.to_string(), server);
    assert_eq!(clusters.target.unwrap().config.cluster_url.to_string(), server);
}

#[tokio::test]
async fn a_context_that_does_not_exist_is_answered_with_those_that_do() {
    let error = chosen(ContextChoice { context: Some("three".to_owned()), ..ContextChoice::default() }).await;
    let error = error.unwrap_err();
    assert!(error.to_string().ends_with("(--context): it has 2 others: one, two"), "{error}");
    assert!(error.hint().contains("get-contexts"));
}

#[tokio::test]
async fn a_user_and_groups_are_impersonated() {
    let groups = vec!["ops".to_owned()];
    let choice = ContextChoice { user: Some("alice".to_owned()), groups: groups.clone(), ..ContextChoice::default() };
    let user = chosen(choice).await.unwrap().control.config.auth_info;
    assert_eq!((user.impersonate.as_deref(), user.impersonate_groups), (Some("alice"), Some(groups)));
}

#[tokio::test]
async fn the_user_of_the_control_cluster_is_not_that_of_another_target() {
    let (one, two) = (file(&of_two_contexts()), file(&kubeconfig("https://two.example", "", "")));
    let choice = ContextChoice { user: Some("alice".to_owned()), ..ContextChoice::default() };
    let (control, target) = (ControlKubeconfig::Named(one.path.clone()), TargetKubeconfig::Path(two.path.clone()));
    let clusters = ProcessClusters::load_chosen(&control, &target, KubeconfigFallback::None, &choice).await.unwrap();
    assert_eq!(clusters.control.config.auth_info.impersonate.as_deref(), Some("alice"));
    assert_eq!(clusters.target.unwrap().config.auth_info.impersonate, None);
}

#[tokio::test]
async fn a_folder_is_no_kubeconfig() {
    let folder = TempDir::new().unwrap();
    let target = TargetKubeconfig::Path(folder.path().into());
    let error =
        ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None).await.unwrap_err();
    assert!(matches!(error, StartError::Unreadable { .. }), "{error}");
}

/// A sparse file of 10 GB: it takes no space on the disk.
fn endless(folder: &TempDir) -> String {
    let path = folder.path().join("endless");
    fs::File::create(&path).unwrap().set_len(10 << 30).unwrap();
    path.display().to_string()
}

#[rstest]
#[case::token("tokenFile", "it has more than 64 KiB")]
#[case::key("client-key", "it has more than 4096 KiB")]
#[case::certificate("client-certificate", "it has more than 4096 KiB")]
#[tokio::test]
async fn a_file_without_end_is_refused_and_named(#[case] field: &str, #[case] cause: &str) {
    let folder = TempDir::new().unwrap();
    let path = endless(&folder);
    for (path, cause) in [(path.as_str(), cause), ("/dev/zero", "it is not a regular file")] {
        let error = load(&kubeconfig("https://one.example", "", &format!(r#""{field}": "{path}""#))).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("{path} cannot be read: {cause}")), "{error}");
    }
    let error = load(&kubeconfig("https://one.example", &format!(r#", "certificate-authority": "{path}""#), "")).await;
    assert!(error.unwrap_err().to_string().contains("it has more than 4096 KiB"));
    let target = TargetKubeconfig::Path(path.into());
    let error =
        ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None).await.unwrap_err();
    assert!(
        matches!(&error, StartError::Unreadable { source, .. } if source.to_string().contains("16384 KiB")),
        "{error}"
    );
}

#[tokio::test]
async fn a_token_is_read_from_its_file_and_again_when_the_file_changes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, "one\n").unwrap();
    let file = file(&kubeconfig("https://one.example", "", &format!(r#""tokenFile": "{}""#, path.display())));
    let target = TargetKubeconfig::Path(file.path.clone());
    let cluster = ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None)
        .await
        .unwrap()
        .control;
    assert_eq!(secret(&cluster), "one");
    assert!(cluster.reload().await.unwrap().is_none(), "nothing changed");
    fs::write(&path, "two").unwrap();
    assert_eq!(secret(&cluster.reload().await.unwrap().unwrap()), "two");
    endless(&folder);
    fs::rename(folder.path().join("endless"), &path).unwrap();
    assert!(cluster.reload().await.is_err(), "the previous token stays in use");
}

/// The token of a configuration, as it would be written.
fn secret(cluster: &ClusterConfig) -> String {
    let user = serde_json::to_value(&cluster.config.auth_info).unwrap();
    user["token"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn nothing_of_a_credential_plugin_is_quoted() {
    let exec = r#""exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": ["-c", "echo hush-hush; echo hush-hush >&2; exit 3"], "interactiveMode": "Never"}"#;
    let clusters = load(&kubeconfig("https://127.0.0.1:1", "", exec)).await.unwrap();
    let error = match client(&clusters.control, UserAgent::Mcm).await {
        Err(error) => error,
        Ok(client) => wait_until_ready(&client, &clusters.control.config.cluster_url).await.unwrap_err(),
    }
    .to_string();
    assert!(error.contains("the credential plugin failed with exit status: 3"), "{error}");
    assert!(!error.contains(TOKEN), "{error}");
}

#[tokio::test]
async fn a_certificate_of_version_1_is_explained() {
    let testdata = concat!(env!("CARGO_MANIFEST_DIR"), "/kubeconfig/testdata");
    let user = format!(r#""client-certificate": "{testdata}/x509-v1.pem", "client-key": "{testdata}/x509-v1-key.pem""#);
    let clusters = load(&kubeconfig("https://one.example:6443", "", &user)).await.unwrap();
    let error = client(&clusters.control, UserAgent::Mcm).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "trust the API server https://one.example:6443: one of the certificates in use is of X.509 version 1, which is not supported"
    );
    assert!(error.hint().contains("version 3"));
}

#[rstest]
#[case("invalid peer certificate: Other(OtherError(UnsupportedCertVersion))", "is of X.509 version 1")]
#[case("invalid peer certificate: UnknownIssuer", "invalid peer certificate: UnknownIssuer")]
fn a_server_that_cannot_be_trusted_is_not_asked_again(#[case] text: &str, #[case] said: &str) {
    let error = kube::Error::Service(text.into());
    let error = StartError::from_certificate(&http::Uri::from_static("https://one.example"), &error).unwrap();
    assert!(error.to_string().starts_with("trust the API server https://one.example: "));
    assert!(error.to_string().contains(said), "{error}");
}

#[tokio::test]
async fn requests_carry_the_name_of_their_purpose() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let clusters = load(&kubeconfig(&server, "", "")).await.unwrap();
    let client = client(&clusters.control, UserAgent::LeaderElection).await.unwrap();

    let answer = tokio::spawn(async move { client.apiserver_version().await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    assert!(answer.await.unwrap().is_err());

    let request = String::from_utf8(request).unwrap().to_lowercase();
    let agents: Vec<_> = request.lines().filter(|line| line.starts_with("user-agent:")).collect();
    assert_eq!(agents, ["user-agent: machine-leader-election"]);
}

#[rstest]
#[case("https://localhost:6443", true)]
#[case("https://127.0.0.2", true)]
#[case("https://[::1]:6443", true)]
#[case("https://10.0.0.1", false)]
#[case("https://localhost.example", false)]
fn this_host_is_known_in_every_spelling(#[case] url: &str, #[case] is_here: bool) {
    assert_eq!(source::is_loopback(url.parse::<http::Uri>().unwrap().host().unwrap()), is_here);
}

#[rstest]
#[case("https://kube-apiserver:443", "kube-apiserver,10.0.0.0/8", false)]
#[case("https://kube-apiserver:443", "kube-apiserver:443", false)]
#[case("https://kube-apiserver:443", "kube-apiserver:6443", true)]
#[case("https://10.1.2.3:6443", "kube-apiserver,10.0.0.0/8", false)]
#[case("https://11.1.2.3:6443", "kube-apiserver,10.0.0.0/8", true)]
#[case("https://api.shoot.internal", ".internal", false)]
#[case("https://api.example", "*", false)]
#[case("https://api.example", "", true)]
#[case("https://api.example", "proxy.example", true)]
#[case("https://[::1]:6443", "", false)]
#[case("https://127.0.0.1:6443", "", false)]
fn a_proxy_of_the_environment_is_not_used_for_hosts_in_no_proxy(
    #[case] server: &str,
    #[case] no_proxy: &str,
    #[case] expected: bool,
) {
    let proxy = "http://user:secret@proxy.example:3128".parse().unwrap();
    assert_eq!(source::is_proxied(&server.parse().unwrap(), &proxy, no_proxy), expected);
}

#[tokio::test]
async fn a_cluster_is_read_again_only_after_a_change_of_its_files() {
    let authority = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let cluster = format!(r#", "certificate-authority": "{}""#, authority.path.display());
    let config = file(&kubeconfig("https://one.example", &cluster, ""));
    let control = ControlKubeconfig::Path(config.path.clone());
    let clusters = ProcessClusters::load(&control, &TargetKubeconfig::None, KubeconfigFallback::None).await.unwrap();
    let control = clusters.control;
    assert!(control.reload().await.unwrap().is_none());

    fs::write(&authority.path, "-----BEGIN CERTIFICATE-----\nAAAB\n-----END CERTIFICATE-----\n").unwrap();
    let control = control.reload().await.unwrap().unwrap();
    assert_eq!(control.config.root_cert, Some(vec![vec![0, 0, 1]]));

    fs::write(&config.path, "half of a f").unwrap();
    assert!(control.reload().await.is_err());
    fs::write(&config.path, kubeconfig("https://two.example", &cluster, "")).unwrap();
    assert_eq!(control.reload().await.unwrap().unwrap().config.cluster_url, "https://two.example");
}

/// A kubeconfig from a Secret must not read the token of this pod, nor start anything.
#[rstest]
#[case::exec(r#""exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"}"#, "", "exec")]
#[case::token_file(r#""tokenFile": "/etc/hostname""#, "", "tokenFile")]
#[case::certificate(r#""client-certificate": "/etc/hostname""#, "", "client-certificate")]
#[case::key(r#""client-key": "/etc/hostname""#, "", "client-key")]
#[case::provider(r#""auth-provider": {"name": "oidc", "config": {}}"#, "", "auth-provider")]
#[case::authority("", r#", "certificate-authority": "/etc/hostname""#, "certificate-authority")]
#[tokio::test]
async fn a_kubeconfig_that_others_wrote_may_neither_start_programs_nor_read_files(
    #[case] user: &str,
    #[case] cluster: &str,
    #[case] field: &str,
) {
    let text = kubeconfig("https://one.example", cluster, user);
    let error = ClusterConfig::from_text(&text, "Secret", "ns/c-kubeconfig").await.unwrap_err().to_string();
    assert!(error.contains(&format!("ns/c-kubeconfig (Secret): {field} is not allowed")), "{error}");
}

#[tokio::test]
async fn a_kubeconfig_that_others_wrote_is_used_as_it_is_and_never_quoted() {
    let text = kubeconfig("https://one.example", "", &format!(r#""token": "{TOKEN}""#));
    let cluster = ClusterConfig::from_text(&text, "Secret", "ns/c-kubeconfig").await.unwrap();
    assert_eq!(cluster.config.cluster_url, "https://one.example");
    assert!(cluster.reload().await.unwrap().is_none(), "there is no file to read again");
    let error = ClusterConfig::from_text(&format!("{{{TOKEN}: ["), "Secret", "ns/c-kubeconfig").await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains(TOKEN), "{error}");
}

/// Texts that take a parser without limits long, or much memory.
#[rstest]
#[case::lists("[".repeat(1_000_000), "not the YAML of a kubeconfig")]
#[case::maps("{a: ".repeat(250_000), "not the YAML of a kubeconfig")]
#[case::aliases((0..30).map(|n| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1)).fold("a0: &a0 [x]\n".to_owned(), |all, line| all + &line), "not the YAML of a kubeconfig")]
#[case::too_large("a".repeat(2 << 20), "it has more than 1024 KiB")]
#[tokio::test]
async fn a_hostile_kubeconfig_is_refused_at_once(#[case] text: String, #[case] expected: &str) {
    let began = std::time::Instant::now();
    let error = ClusterConfig::from_text(&text, "Secret", "ns/c-kubeconfig").await.unwrap_err().to_string();
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(error.contains(expected), "{error}");
}
