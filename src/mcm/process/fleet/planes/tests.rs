use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// As gardenlet renders it for a seed.
const GENERIC: &str = "apiVersion: v1
kind: Config
current-context: shoot--a--one
clusters: [{name: shoot--a--one, cluster: {server: 'https://kube-apiserver', certificate-authority-data: Q0E=}}]
contexts: [{name: shoot--a--one, context: {cluster: shoot--a--one, user: shoot--a--one}}]
users: [{name: shoot--a--one, user: {tokenFile: /var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token}}]
";
const SHOOT: ServerRule = ServerRule::Confined { names_services: true, allows_loopback: false };
const CLUSTER: ServerRule = ServerRule::Confined { names_services: false, allows_loopback: false };

fn deployment(volumes: &Value) -> Deployment {
    let template = json!({ "spec": { "containers": [], "volumes": volumes } });
    serde_json::from_value(json!({ "spec": { "selector": {}, "template": template } })).unwrap()
}

fn projected(sources: &Value) -> Value {
    json!([{ "name": "other", "emptyDir": {} }, { "name": "kubeconfig", "projected": { "defaultMode": 420, "sources": sources } }])
}

fn source(name: &str, item: &str) -> Value {
    json!({ "secret": { "name": name, "items": [{ "key": item, "path": item }], "optional": false } })
}

#[test]
fn the_secrets_of_a_shoot_are_those_of_the_projected_volume() {
    let sources = json!([source("generic-token-kubeconfig-ab12", "kubeconfig"), source("shoot-access-mcm", "token")]);
    let found = secrets_of_shoot(&deployment(&projected(&sources))).unwrap();
    let value = |name: &str, key: &str| SecretValue { name: name.to_owned(), key: key.to_owned() };
    assert_eq!(found.kubeconfig, value("generic-token-kubeconfig-ab12", "kubeconfig"));
    assert_eq!(found.token, Some(value("shoot-access-mcm", "token")));
}

#[rstest]
#[case::none(json!([]))]
#[case::no_token(projected(&json!([source("generic", "kubeconfig")])))]
#[case::no_kubeconfig(projected(&json!([source("access", "token")])))]
#[case::whole_secrets(projected(&json!([{ "secret": { "name": "generic" } }, { "secret": { "name": "access" } }])))]
fn a_deployment_without_such_a_volume_is_a_problem(#[case] volumes: Value) {
    assert_eq!(secrets_of_shoot(&deployment(&volumes)), Err(PlaneProblem::NoVolume));
}

#[test]
fn a_namespace_has_the_secret_of_its_only_cluster() {
    assert_eq!(secret_of_clusters(&["one"]).unwrap().kubeconfig.name, "one-kubeconfig");
    let problem = secret_of_clusters(&["one", "two"]).unwrap_err();
    assert!(problem.to_string().contains("one, two"), "{problem}");
}

#[tokio::test]
async fn the_generic_kubeconfig_gets_its_token_and_the_service_of_its_namespace() {
    let found = target_of(("shoot--a--one", "Secret x"), GENERIC, Some(" token-1\n"), SHOOT).await.unwrap();
    assert_eq!(found.server, "https://kube-apiserver.shoot--a--one.svc/");
    assert!(found.text.contains("\"token-1\"") && !found.text.contains("tokenFile"), "{}", found.text);
    let found = target_of(("n", "Secret x"), &GENERIC.replace("apiserver'", "apiserver:8443'"), Some("t"), SHOOT).await;
    assert_eq!(found.unwrap().server, "https://kube-apiserver.n.svc:8443/");
}

#[rstest]
#[case::other_token_file(GENERIC.replace("generic-kubeconfig/token", "../token"), "tokenFile is not allowed")]
#[case::program(GENERIC.replace("{tokenFile", "{exec: {command: sh}, tokenFile"), "exec is not allowed")]
#[case::file(GENERIC.replace("authority-data: Q0E=", "authority: /etc/ca"), "certificate-authority is not allowed")]
#[case::proxy(GENERIC.replace("cluster: {server", "cluster: {proxy-url: 'http://proxy', server"), "proxy-url")]
#[case::plain(GENERIC.replace("https://", "http://"), "https://")]
#[case::this_host(GENERIC.replace("kube-apiserver", "127.0.0.1:6443"), "address of this process")]
#[case::this_host_in_v6(GENERIC.replace("kube-apiserver", "[::ffff:127.0.0.1]:6443"), "address of this process")]
#[case::metadata_service(GENERIC.replace("kube-apiserver", "169.254.169.254"), "address of this process")]
#[case::name_of_this_host(GENERIC.replace("kube-apiserver", "localhost"), "this process")]
#[case::other_namespace(GENERIC.replace("kube-apiserver", "kube-apiserver.shoot--b--two.svc"), "another namespace")]
#[case::control_cluster(GENERIC.replace("kube-apiserver", "kubernetes.default.svc.cluster.local"), "another namespace")]
#[case::no_yaml("clusters: [".to_owned(), "not the YAML")]
#[tokio::test]
async fn a_kubeconfig_that_leads_out_of_its_namespace_is_refused(#[case] text: String, #[case] reason: &str) {
    let problem =
        target_of(("shoot--a--one", "Secret x"), &text, Some("secret-1"), SHOOT).await.err().unwrap().to_string();
    assert!(problem.contains(reason) && problem.contains("Secret x"), "{problem}");
    assert!(!problem.contains("secret-1"), "{problem}");
}

#[rstest]
#[case::service(SHOOT, "https://kube-apiserver.n.svc", true)]
#[case::external(SHOOT, "https://api.one.example:443", true)]
#[case::short_name_beside_the_process(CLUSTER, "https://kube-apiserver", false)]
#[case::address(CLUSTER, "https://10.1.2.3:6443", true)]
#[case::loopback_where_the_control_cluster_is(
    ServerRule::Confined { names_services: false, allows_loopback: true }, "https://127.0.0.1:6443", true
)]
#[case::the_operator_may_name_any(ServerRule::Any, "https://127.0.0.1:6443", true)]
fn servers_are_those_of_the_namespace_or_of_others(
    #[case] rule: ServerRule,
    #[case] server: &str,
    #[case] is_allowed: bool,
) {
    assert_eq!(rule.checked(server, "n").is_ok(), is_allowed);
}

#[rstest]
#[case::empty("")]
#[case::too_long(&"x".repeat(LONGEST_TOKEN + 1))]
#[case::not_ascii("tökén")]
#[tokio::test]
async fn a_token_that_no_header_can_have_is_refused(#[case] token: &str) {
    let problem = target_of(("n", "Secret x"), GENERIC, Some(token), SHOOT).await.err().unwrap().to_string();
    assert!(problem.contains("its token"), "{problem}");
}

fn target(server: &str, text: &str) -> Result<PlaneTarget, PlaneProblem> {
    Ok(PlaneTarget { server: server.to_owned(), text: text.to_owned() })
}

fn planes<const N: usize>(all: [(&str, Result<PlaneTarget, PlaneProblem>); N]) -> FoundPlanes {
    all.map(|(name, found)| (name.to_owned(), found)).into()
}

#[test]
fn a_new_token_keeps_the_cell_and_another_server_makes_another_one() {
    let mut known = KnownPlanes::new(ControlKubeconfig::InCluster, true);
    let first = known.follow(planes([("a", target("s1", "t1")), ("b", target("s2", "t1"))]));
    let (a, b) = (&first.cells["a"], &first.cells["b"]);
    assert_eq!((a.leases.as_str(), a.has_switch, a.scope.clone()), ("a", true, CellScope::Namespace("a".to_owned())));
    assert_eq!(a.secrets, Some(CellSecrets::default()), "nothing of the process");
    let second = known.follow(planes([("a", target("s1", "t2")), ("b", target("s3", "t1"))]));
    assert_eq!(second.cells["a"], *a);
    assert_ne!(second.cells["b"], *b);
}

#[test]
fn a_problem_keeps_the_cell_that_there_is_and_makes_none() {
    let mut known = KnownPlanes::new(ControlKubeconfig::InCluster, false);
    let first = known.follow(planes([("a", target("s", "t")), ("b", Err(PlaneProblem::NoVolume))]));
    assert_eq!(first.cells.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(first.problems["b"], PlaneProblem::NoVolume);
    let unread = || PlaneProblem::Unread { what: "Secret a/x".to_owned(), cause: "not found".to_owned() };
    let second = known.follow(planes([("a", Err(unread())), ("b", target("s", "t"))]));
    assert_eq!(second.cells["a"], first.cells["a"]);
    assert!(second.cells.contains_key("b") && second.problems.len() == 1 && second.problems["a"] == unread());
    let third = known.follow(planes([("b", target("s", "t"))]));
    assert_eq!(third.cells.keys().collect::<Vec<_>>(), ["b"], "a control plane that is gone has no cell");
}
