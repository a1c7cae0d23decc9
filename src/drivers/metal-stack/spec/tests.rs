//! Valid and invalid fields of a class, with the problems that are reported.

use rstest::rstest;
use serde_json::{Value, json};

use super::{Scope, Spec};
use mcm_driver::spec::ClassProblems;

fn spec() -> Value {
    json!({
        "partition": "fra-equ01", "size": "c1-xlarge-x86", "image": "ubuntu-24.04", "project": "p", "network": "n",
        "tags": ["cluster.metal-stack.io/id=c"],
    })
}

fn changed(name: &str, value: Value) -> Value {
    let mut spec = spec();
    spec[name] = value;
    spec
}

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    let mut problems = ClassProblems::default();
    let read = Spec::read(&spec(), &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!(read.scope().unwrap(), Scope { project: "p".to_owned(), cluster: "c".to_owned() });
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let value = json!({
        "PARTITION": "a", "Size": "b", "iMage": "c", "projecT": "d", "Network": "e", "TAGS": ["cluster.metal-stack.io/id=c"],
        "SSHKeys": ["k"], "dnsservers": [{"IP": "1.1.1.1"}], "ntpServers": null,
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!(
        (read.partition.as_str(), read.dns_servers, read.ssh_keys),
        ("a", vec!["1.1.1.1".to_owned()], vec!["k".to_owned()])
    );
}

#[rstest]
#[case::partition("partition", Value::Null, "providerSpec.partition: expected a non-empty string, found nothing")]
#[case::size("size", json!(""), "providerSpec.size: expected a non-empty string, found an empty string")]
#[case::image("image", json!(7), "providerSpec.image: expected a non-empty string, found the number 7")]
#[case::project("project", Value::Null, "providerSpec.project: expected a non-empty string, found nothing")]
#[case::network("network", Value::Null, "providerSpec.network: expected a non-empty string, found nothing")]
#[case::no_tags(
    "tags",
    Value::Null,
    "providerSpec.tags: expected a tag cluster.metal-stack.io/id=<cluster>, found none"
)]
#[case::tags_of_others("tags", json!(["a=b"]), "providerSpec.tags: expected a tag cluster.metal-stack.io/id=<cluster>, found none")]
#[case::no_cluster("tags", json!(["cluster.metal-stack.io/id="]), "providerSpec.tags: expected a cluster in the tag cluster.metal-stack.io/id=<cluster>, found an empty one")]
#[case::only_the_key("tags", json!(["cluster.metal-stack.io/id"]), "providerSpec.tags: expected a cluster in the tag cluster.metal-stack.io/id=<cluster>, found an empty one")]
#[case::tag_of_a_wrong_type("tags", json!(["cluster.metal-stack.io/id=c", 7]), "providerSpec.tags[1]: expected a string, found the number 7")]
#[case::keys("sshKeys", json!("ssh-rsa"), r#"providerSpec.sshKeys: expected a list, found the string "ssh-rsa""#)]
#[case::dns("dnsServers", json!([{"ip": "dns.example.com"}]), r#"providerSpec.dnsServers[0].ip: expected an IP address, found the string "dns.example.com""#)]
#[case::no_ip("dnsServers", json!([{}]), "providerSpec.dnsServers[0].ip: expected an IP address, found nothing")]
#[case::dns_servers("dnsServers", json!([{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}, {"ip": "::1"}, {"ip": "1.1.1.4"}]), "providerSpec.dnsServers: expected at most 3, found 4")]
#[case::ntp("ntpServers", json!([{"address": ""}]), "providerSpec.ntpServers[0].address: expected a non-empty string, found an empty string")]
#[case::ntp_servers("ntpServers", json!([{"address": "a"}, {"address": "b"}, {"address": "c"}, {"address": "d"}, {"address": "e"}, {"address": "f"}]), "providerSpec.ntpServers: expected at most 5, found 6")]
fn a_wrong_field_is_reported_with_its_path(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&changed(name, value)).0, [expected]);
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_that_is_no_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(&value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case("networks", json!([]), "providerSpec.networks: unknown field, ignored: did you mean network?")]
#[case("tags", json!(["cluster.metal-stack.io/id=c", "machine.sapcloud.io/owner=x"]), "providerSpec.tags[1]: ignored: mcm sets the tag machine.sapcloud.io/owner itself")]
#[case("tags", json!(["cluster.metal-stack.io/id=b", "cluster.metal-stack.io/id=c"]), "providerSpec.tags: 2 tags have the key cluster.metal-stack.io/id: the last marks the machines")]
fn a_field_without_an_effect_is_a_warning(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    let value = changed(name, value);
    assert_eq!(texts(&value), (vec![], vec![expected.to_owned()]));
    assert_eq!(Spec::read(&value, &mut ClassProblems::default()).scope().unwrap().cluster, "c");
}

#[test]
fn machines_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"project": "p", "tags": ["cluster.metal-stack.io/id=c"]});
    let spec = Spec::read(&value, &mut ClassProblems::default());
    assert_eq!(spec.scope().unwrap().tag(), "cluster.metal-stack.io/id=c");
    let without_project = json!({"tags": ["cluster.metal-stack.io/id=c"]});
    Spec::read(&without_project, &mut ClassProblems::default()).scope().unwrap_err();
}
