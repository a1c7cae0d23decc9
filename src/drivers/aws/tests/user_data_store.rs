//! User data that are kept in Secrets Manager.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use aws_smithy_types::base64;
use flate2::read::GzDecoder;
use futures::future::join_all;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    code, driver, driver_that_waits,
    fake::{Fault, Shared, serve, tags},
    fake_secrets::FakeSecret,
    observed_driver, request, request_for, spec_with, start, start_cloud, with_id,
};
use crate::NAME;
use mcm_driver::{
    Code, MachineRequest,
    conformance::run,
    interface::Driver,
    testing::{Recorder, bootstrap},
};

const CONFIG: &str = "#cloud-config\nwrite_files:\n- path: /etc/kubernetes/pki/ca.key\n  content: hunter2-hunter2\n";
const TEMPLATE: &str = "## template: jinja\n#cloud-config\nruncmd:\n- hostname {{ ds.meta_data.local_hostname }}\n";

fn store() -> Value {
    spec_with(&json!({"userDataStore": "SecretsManager"}))
}

/// A request for a machine whose user data are kept in Secrets Manager.
fn stored(name: &str) -> MachineRequest {
    with_user_data(request_for(name, &format!("uid-{name}"), store()), CONFIG.as_bytes())
}

fn with_user_data(mut request: MachineRequest, data: &[u8]) -> MachineRequest {
    request.secret.0.insert("userData".to_owned(), data.to_vec());
    request
}

fn secret(cloud: &Shared, name: &str) -> Option<FakeSecret> {
    cloud.lock().secrets.get(name).cloned()
}

fn vms_and_secrets(cloud: &Shared) -> (usize, usize) {
    let cloud = cloud.lock();
    (cloud.alive().len(), cloud.secrets.len())
}

/// The user data in a secret.
fn value(cloud: &Shared, name: &str) -> Option<Vec<u8>> {
    let value = secret(cloud, name)?.value;
    let mut data = Vec::new();
    GzDecoder::new(&value[..]).read_to_end(&mut data).unwrap();
    Some(data)
}

/// User data of the VM that was created last.
fn sent(cloud: &Shared) -> String {
    let sent = cloud.lock().sent("RunInstances").pop().unwrap();
    String::from_utf8(base64::decode(&sent["UserData"]).unwrap()).unwrap()
}

#[tokio::test]
async fn user_data_are_in_secrets_manager_and_the_vm_has_a_script_without_them() {
    let (cloud, driver) = start().await;
    let request = stored("a");
    driver.create(&request).await.unwrap();
    assert_eq!(value(&cloud, "mcm/uid-a").unwrap(), CONFIG.as_bytes());
    let run = cloud.lock().sent("RunInstances").remove(0);
    assert_eq!(secret(&cloud, "mcm/uid-a").unwrap().tags, tags(&run, 1), "those of the VM");
    let script = sent(&cloud);
    assert!(script.starts_with("#cloud-boothook\n#!/bin/sh\n") && script.len() < 4096, "{} bytes", script.len());
    assert!(script.contains("secret='mcm/uid-a'") && script.contains("--region 'eu-west-1'"), "{script}");
    let stored = base64::encode(secret(&cloud, "mcm/uid-a").unwrap().value);
    for part in ["hunter2", "ca.key", &base64::encode(CONFIG)[..20], &stored[..20], "AKIDEXAMPLE", "top-secret", "@"] {
        assert!(!script.replace("\"$@\"", "").contains(part), "{part} in {script}");
    }
    let actions: Vec<String> = cloud.lock().requests.iter().map(|(action, _)| action.clone()).collect();
    assert_eq!(actions, ["DescribeInstances", "DescribeImages", "CreateSecret", "RunInstances", "DescribeInstances"]);
}

#[tokio::test]
async fn a_secret_is_deleted_with_its_machine() {
    let (cloud, driver) = start().await;
    let vm = driver.create(&stored("a")).await.unwrap();
    driver.create(&stored("b")).await.unwrap();
    driver.delete(&with_id(stored("a"), &vm.provider_id)).await.unwrap();
    assert_eq!(cloud.lock().secrets.keys().collect::<Vec<_>>(), ["mcm/uid-b"]);
    driver.delete(&with_id(stored("a"), &vm.provider_id)).await.expect("nothing there is a success");
    cloud.lock().faults.push(("DeleteSecret", Fault::Error("ResourceNotFoundException", 400), 1));
    driver.delete(&stored("a")).await.expect("an absent secret is a success");
}

#[tokio::test]
async fn without_a_store_secrets_manager_is_not_called() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    driver.delete(&request("a")).await.unwrap();
    let calls = cloud.lock().requests.iter().filter(|(action, _)| action.contains("Secret")).count();
    assert_eq!(calls, 0);
}

#[tokio::test]
async fn a_secret_of_a_machine_that_never_had_a_vm_is_deleted() {
    let (cloud, driver) = start().await;
    cloud.lock().faults.push(("RunInstances", Fault::Error("VcpuLimitExceeded", 400), 1));
    assert_eq!(code(driver.create(&stored("a")).await), Code::ResourceExhausted);
    assert!(secret(&cloud, "mcm/uid-a").is_some());
    driver.delete(&stored("a")).await.unwrap();
    assert_eq!(cloud.lock().secrets.len(), 0);
}

/// An orphan has no UID but that on its VM, and is listed only while its VM exists.
#[tokio::test]
async fn a_secret_of_an_orphan_is_deleted_before_its_vm() {
    let (cloud, driver) = start().await;
    let vm = driver.create(&stored("a")).await.unwrap();
    let orphan = with_id(request_for("a", "", store()), &vm.provider_id);
    cloud.lock().faults.push(("DeleteSecret", Fault::Error("AccessDeniedException", 400), 1));
    let error = driver.delete(&orphan).await.unwrap_err();
    assert_eq!(error.code, Code::PermissionDenied);
    assert!(error.message.starts_with("DeleteSecret of mcm/uid-a failed: AccessDeniedException"), "{error}");
    assert_eq!(vms_and_secrets(&cloud), (1, 1));
    driver.delete(&orphan).await.unwrap();
    assert_eq!(vms_and_secrets(&cloud), (0, 0));
}

#[tokio::test]
async fn a_secret_that_cannot_be_deleted_is_an_error_and_the_vm_ends() {
    let (cloud, driver) = start().await;
    driver.create(&stored("a")).await.unwrap();
    cloud.lock().faults.push(("DeleteSecret", Fault::Error("AccessDeniedException", 400), 1));
    assert_eq!(code(driver.delete(&stored("a")).await), Code::PermissionDenied);
    assert_eq!(vms_and_secrets(&cloud), (0, 1));
    driver.delete(&stored("a")).await.unwrap();
    assert_eq!(cloud.lock().secrets.len(), 0);
}

/// A failed look-up does not prove that the VM is absent.
#[tokio::test]
async fn a_secret_stays_while_it_is_unknown_whether_there_is_a_vm() {
    let (cloud, driver) = start().await;
    driver.create(&stored("a")).await.unwrap();
    cloud.lock().faults.push(("DescribeInstances", Fault::Status(404), 99));
    assert_eq!(code(driver.delete(&stored("a")).await), Code::Unknown);
    assert_eq!(vms_and_secrets(&cloud), (1, 1));
}

/// The process ends between two calls: another one finds what there is.
#[rstest]
#[case::after_the_secret("RunInstances", Fault::Timeout)]
#[case::after_the_vm("RunInstances", Fault::LostAnswer)]
#[tokio::test]
async fn after_a_crash_there_is_one_secret_with_the_latest_user_data(
    #[case] action: &'static str,
    #[case] fault: Fault,
) {
    let (cloud, url) = start_cloud().await;
    cloud.lock().faults.push((action, fault, 99));
    driver_that_waits(&url, Duration::from_millis(300)).create(&stored("a")).await.unwrap_err();
    cloud.lock().faults.clear();
    // EC2 does not show a new VM at once.
    cloud.lock().instances.values_mut().for_each(|instance| instance.hidden = 1);
    let later = with_user_data(stored("a"), b"#cloud-config\n# with another token\n");
    driver(&url).create(&later).await.unwrap();
    assert_eq!(vms_and_secrets(&cloud), (1, 1));
    assert_eq!(value(&cloud, "mcm/uid-a").unwrap(), b"#cloud-config\n# with another token\n");
    let runs = cloud.lock().sent("RunInstances");
    assert!(runs.iter().all(|run| *run == runs[0]), "a new token does not change the request");
}

#[tokio::test]
async fn a_machine_that_is_deleted_after_a_crash_leaves_no_secret() {
    let (cloud, url) = start_cloud().await;
    cloud.lock().faults.push(("RunInstances", Fault::Timeout, 99));
    let creation = driver_that_waits(&url, Duration::from_secs(60));
    let request = stored("a");
    tokio::select! {
        done = creation.create(&request) => panic!("{done:?}"),
        () = async { while cloud.lock().runs == 0 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(vms_and_secrets(&cloud), (0, 1));
    driver(&url).delete(&request).await.unwrap();
    assert_eq!(cloud.lock().secrets.len(), 0);
}

/// The code of a creation whose call of Secrets Manager fails, for each way to fail.
const FAULTS: [(Fault, Code); 7] = [
    (Fault::LostAnswer, Code::Unknown),
    (Fault::Error("ThrottlingException", 400), Code::Unavailable),
    (Fault::Status(503), Code::Unavailable),
    (Fault::Malformed, Code::Unknown),
    (Fault::Error("ExpiredTokenException", 400), Code::Unauthenticated),
    (Fault::Error("AccessDeniedException", 400), Code::PermissionDenied),
    (Fault::Error("InvalidRequestException", 400), Code::FailedPrecondition),
];

#[rstest]
#[case("CreateSecret", false)]
#[case("DescribeSecret", true)]
#[case("PutSecretValue", true)]
#[tokio::test]
async fn without_its_secret_no_vm_is_created_and_the_next_attempt_leads_to_both(
    #[case] action: &'static str,
    #[case] is_there: bool,
) {
    join_all(FAULTS.map(async |(fault, expected)| {
        let (cloud, driver) = start().await;
        if is_there {
            cloud.lock().faults.push(("RunInstances", Fault::Error("VcpuLimitExceeded", 400), 1));
            driver.create(&stored("a")).await.unwrap_err();
        }
        cloud.lock().faults.push((action, fault, 99));
        let error = driver.create(&stored("a")).await.unwrap_err();
        assert_eq!((error.code, cloud.lock().instances.len()), (expected, 0), "{action} {fault:?}: {error}");
        assert!(error.message.starts_with(&format!("{action} of mcm/uid-a failed: ")), "{error}");
        assert!(["hunter2", "AKIDEXAMPLE"].iter().all(|secret| !error.message.contains(secret)), "{error}");
        cloud.lock().faults.clear();
        driver.create(&stored("a")).await.unwrap();
        assert_eq!(vms_and_secrets(&cloud), (1, 1), "{action} {fault:?}");
        assert_eq!(value(&cloud, "mcm/uid-a").unwrap(), CONFIG.as_bytes(), "{action} {fault:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_lost_answer_of_secrets_manager_is_forgiven_within_the_call() {
    let (cloud, driver) = start().await;
    for action in ["CreateSecret", "DeleteSecret"] {
        cloud.lock().faults.push((action, Fault::LostAnswer, 1));
    }
    driver.create(&stored("a")).await.unwrap();
    assert_eq!(cloud.lock().sent("PutSecretValue").len(), 0, "the token of the request makes it the same secret");
    driver.delete(&stored("a")).await.unwrap();
    assert_eq!(cloud.lock().secrets.len(), 0);
}

#[tokio::test]
async fn a_secret_of_another_owner_is_left_alone() {
    let (cloud, driver) = start().await;
    let other = FakeSecret { value: b"theirs".to_vec(), ..FakeSecret::default() };
    cloud.lock().secrets.insert("mcm/uid-a".to_owned(), other);
    let error = driver.create(&stored("a")).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.ends_with("delete it"), "{error}");
    assert_eq!((secret(&cloud, "mcm/uid-a").unwrap().value, cloud.lock().runs), (b"theirs".to_vec(), 0));
}

/// Of what does not compress.
fn noise(size: usize) -> Vec<u8> {
    (0..size).map(|_| rand::random::<u8>() | 0x80).collect()
}

#[rstest]
#[case::ignition(bootstrap_of("ignition"), "providerSpec.userDataStore takes userData that begin with #cloud-config")]
#[case::script(b"#!/bin/sh\n".to_vec(), "providerSpec.userDataStore takes")]
#[case::multi_part(b"Content-Type: multipart/mixed; boundary=\"x\"\n".to_vec(), "providerSpec.userDataStore takes")]
#[case::archive(b"#cloud-config-archive\n".to_vec(), "providerSpec.userDataStore takes")]
#[case::template_of_a_script(b"## template: jinja\n#!/bin/sh\n".to_vec(), "providerSpec.userDataStore takes")]
#[case::too_large([&b"#cloud-config\n"[..], &noise(80_000)].concat(), "userData has 80014 bytes, compressed ")]
#[tokio::test]
async fn user_data_that_cannot_be_fetched_are_refused_before_a_call(#[case] data: Vec<u8>, #[case] text: &str) {
    let (cloud, driver) = start().await;
    let request = with_user_data(stored("a"), &data);
    let problems = driver.secret_problems(&request.class, &request.secret);
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.code == Code::InvalidArgument && error.message.starts_with(text), "{error}");
    assert_eq!(problems.errors[0].text, error.message);
    assert_eq!(vms_and_secrets(&cloud), (0, 0));
}

fn bootstrap_of(word: &str) -> Vec<u8> {
    bootstrap::ALL.iter().find(|(what, _)| what.to_ascii_lowercase().contains(word)).unwrap().1.to_vec()
}

/// More than EC2 takes.
#[tokio::test]
async fn a_secret_has_room_for_long_user_data() {
    let (cloud, driver) = start().await;
    let data = [&b"#cloud-config\n#"[..], &noise(50_000)].concat();
    driver.create(&with_user_data(stored("a"), &data)).await.unwrap();
    assert_eq!(value(&cloud, "mcm/uid-a").unwrap(), data);
}

#[rstest]
#[case::no_profile(json!({"iam": null, "userDataStore": "SecretsManager"}), "providerSpec.iam: expected name or arn, found neither")]
#[case::another_store(json!({"userDataStore": "secretsmanager"}), r#"providerSpec.userDataStore: expected one of SecretsManager, found the string "secretsmanager""#)]
#[case::no_store(json!({"userDataStore": ""}), "providerSpec.userDataStore: expected one of SecretsManager, found an empty string")]
#[tokio::test]
async fn a_class_whose_vms_could_not_read_their_user_data_is_refused(#[case] changes: Value, #[case] expected: &str) {
    let (cloud, driver) = start().await;
    let request = with_user_data(request_for("a", "uid-a", spec_with(&changes)), CONFIG.as_bytes());
    let errors: Vec<String> = driver.validate(&request.class).errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, [expected]);
    assert_eq!(code(driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(cloud.lock().requests.len(), 0, "user data never go to EC2 instead");
}

#[tokio::test]
async fn secrets_are_at_the_endpoint_that_a_secret_names_for_the_vm_as_well() {
    let (cloud, _) = start().await;
    let url = serve(&cloud).await;
    let mut request = stored("a");
    request.secret.0.insert("endpointURL".to_owned(), url.clone().into_bytes());
    driver("http://127.0.0.1:9").create(&request).await.unwrap();
    assert!(secret(&cloud, "mcm/uid-a").is_some());
    assert!(sent(&cloud).contains(&format!("--endpoint-url '{url}'")));
    let refused = driver("http://127.0.0.1:9");
    request.secret.0.insert("endpointURL".to_owned(), b"https://secretsmanager.example.net".to_vec());
    assert_eq!(code(refused.delete(&request).await), Code::InvalidArgument);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let (cloud, driver) = start().await;
    super::inspect::furnish(&cloud);
    let request = stored("a");
    driver.inspect(&request.class, &request.secret).await.unwrap();
    assert!(sent(&cloud).starts_with("#cloud-boothook\n"));
    assert_eq!(cloud.lock().secrets.len(), 0);
}

#[tokio::test]
async fn the_driver_conforms_with_a_store() {
    let (cloud, driver) = start().await;
    let mut subject = super::conformance::subject(&driver, store());
    subject.secret = stored("a").secret;
    let report = run(&subject).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    assert_eq!(vms_and_secrets(&cloud), (0, 0), "the suite leaves nothing behind");
}

#[tokio::test]
async fn calls_of_secrets_manager_are_counted_under_their_names() {
    let (_cloud, url) = start_cloud().await;
    let recorder = Arc::new(Recorder::default());
    let driver = observed_driver(&url, Arc::<Recorder>::clone(&recorder));
    driver.create(&stored("a")).await.unwrap();
    assert!(recorder.take(NAME).contains(&("secret_create", 1, 0)));
    driver.delete(&stored("a")).await.unwrap();
    assert!(recorder.take(NAME).contains(&("secret_delete", 1, 0)));
}

/// A VM: its files, with `aws`, `cloud-init` and `sleep` of its image, and Secrets Manager as far as they see it.
struct FakeVm {
    root: tempfile::TempDir,
    script: String,
}

/// A stand-in of the AWS CLI: prints a file, after a given number of failures.
const AWS: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/calls"
case "$*" in
"secretsmanager get-secret-value --region eu-west-1 "*" --secret-id mcm/uid-a --query SecretBinary --output text") ;;
"secretsmanager delete-secret --region eu-west-1 "*" --secret-id mcm/uid-a --force-delete-without-recovery") ;;
*) exit 252 ;;
esac
if [ -s "$here/$2.failures" ]; then
    sed -i 1d "$here/$2.failures"
    head -c 40 "$here/secret"
    exit 255
fi
[ -e "$here/secret" ] || exit 254
case $2 in
get-secret-value) cat "$here/secret" && echo ;;
delete-secret) rm "$here/secret" && echo '{"Name": "mcm/uid-a"}' ;;
esac
"#;

const CLOUD_INIT: &str = "#!/bin/sh\n[ \"$1 $2\" = 'devel render' ] && sed -e 1d -e 's/{{ ds.meta_data.local_hostname }}/ip-10-0-0-1/' \"$3\"\n";

impl FakeVm {
    /// The VM that the driver creates for user data.
    async fn for_user_data(data: &[u8]) -> Self {
        let (cloud, driver) = start().await;
        driver.create(&with_user_data(stored("a"), data)).await.unwrap();
        let vm = Self { root: tempfile::tempdir().unwrap(), script: sent(&cloud) };
        for folder in ["bin", "var/lib/cloud/instances/i-1", "etc/cloud/cloud.cfg.d"] {
            fs::create_dir_all(vm.path(folder)).unwrap();
        }
        vm.belongs_to("i-1");
        fs::write(vm.path("bin/secret"), base64::encode(secret(&cloud, "mcm/uid-a").unwrap().value)).unwrap();
        let root = vm.root.path().to_str().unwrap();
        let script = ["/var/lib/cloud", "/etc/cloud"]
            .iter()
            .fold(vm.script.clone(), |script, path| script.replace(path, &format!("{root}{path}")));
        let programs = [
            ("aws", AWS),
            ("cloud-init", CLOUD_INIT),
            ("sleep", "#!/bin/sh\n"),
            ("sync", "#!/bin/sh\n"),
            ("hook", &script),
        ];
        for (name, text) in programs {
            let path = vm.path("bin").join(name);
            // cloud-init takes its own line away.
            fs::write(&path, text.trim_start_matches("#cloud-boothook\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        vm
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Makes an instance the current one, as cloud-init does when it starts.
    fn belongs_to(&self, instance: &str) {
        let link = self.path("var/lib/cloud/instance");
        fs::remove_file(&link).ok();
        fs::create_dir_all(self.path("var/lib/cloud/instances").join(instance)).unwrap();
        std::os::unix::fs::symlink(self.path("var/lib/cloud/instances").join(instance), link).unwrap();
    }

    /// So many calls of a command of `aws` fail.
    fn fail(&self, command: &str, times: usize) {
        fs::write(self.path("bin").join(format!("{command}.failures")), "x\n".repeat(times)).unwrap();
    }

    /// Runs the script with a shell.
    fn boot(&self, shell: &str) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        Command::new(shell).arg(self.path("bin/hook")).env("PATH", path).output().unwrap()
    }

    /// The file that cloud-init reads.
    fn config(&self) -> Option<Vec<u8>> {
        fs::read(self.path("etc/cloud/cloud.cfg.d/zz-mcm-user-data.cfg")).ok()
    }

    fn has_secret(&self) -> bool {
        self.path("bin/secret").exists()
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.path("bin/calls")).map_or(0, |text| text.lines().count())
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[rstest]
#[case::short(CONFIG.as_bytes().to_vec())]
#[case::without_a_line_end(b"#cloud-config".to_vec())]
#[case::every_byte([&b"#cloud-config\n#"[..], &(0..=255).collect::<Vec<u8>>(), b"\n\n"].concat())]
#[case::long([&b"#cloud-config\n#"[..], &noise(50_000)].concat())]
#[tokio::test]
async fn cloud_init_gets_the_user_data_byte_for_byte_and_the_secret_is_gone(
    #[case] data: Vec<u8>,
    #[values("bash", "sh")] shell: &str,
) {
    let vm = FakeVm::for_user_data(&data).await;
    let output = vm.boot(shell);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((output.stdout, output.stderr), (vec![], vec![]), "the console shows nothing of it");
    assert!(vm.config().unwrap() == data);
    assert!(!vm.has_secret());
    assert_eq!((vm.calls(), mode(&vm.path("etc/cloud/cloud.cfg.d/zz-mcm-user-data.cfg"))), (2, 0o600));
    // The second run of the first boot, and later boots.
    assert!(vm.boot(shell).status.success());
    assert!(vm.config().unwrap() == data);
    assert_eq!(vm.calls(), 2);
}

#[tokio::test]
async fn bootstrap_data_of_cluster_api_reach_a_vm_byte_for_byte() {
    for (what, data) in bootstrap::ALL.iter().filter(|(_, data)| data.starts_with(b"#")) {
        let vm = FakeVm::for_user_data(data).await;
        assert!(vm.boot("bash").status.success(), "{what}");
        assert!(fs::read(vm.path("var/lib/cloud/instance/mcm-user-data")).unwrap() == *data, "{what}");
        let text =
            String::from_utf8(data.to_vec()).unwrap().replace("{{ ds.meta_data.local_hostname }}", "ip-10-0-0-1");
        assert!(text.ends_with(&String::from_utf8(vm.config().unwrap()).unwrap()), "{what}");
    }
}

#[tokio::test]
async fn a_template_is_rendered_for_cloud_init() {
    let vm = FakeVm::for_user_data(TEMPLATE.as_bytes()).await;
    let output = vm.boot("bash");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(vm.config().unwrap(), b"#cloud-config\nruncmd:\n- hostname ip-10-0-0-1\n");
    assert_eq!(fs::read(vm.path("var/lib/cloud/instance/mcm-user-data")).unwrap(), TEMPLATE.as_bytes());
}

#[tokio::test]
async fn an_answer_that_fails_or_breaks_off_is_asked_for_again() {
    let vm = FakeVm::for_user_data(CONFIG.as_bytes()).await;
    vm.fail("get-secret-value", 14);
    vm.fail("delete-secret", 4);
    let output = vm.boot("bash");
    assert!(output.status.success(), "{output:?}");
    assert_eq!((vm.config().unwrap(), vm.has_secret(), vm.calls()), (CONFIG.as_bytes().to_vec(), false, 20));
}

#[tokio::test]
async fn user_data_that_stay_unreadable_are_read_at_the_next_boot() {
    let vm = FakeVm::for_user_data(CONFIG.as_bytes()).await;
    vm.fail("get-secret-value", 15);
    let output = vm.boot("bash");
    assert_eq!((output.status.code(), vm.config(), vm.has_secret()), (Some(1), None, true));
    assert!(String::from_utf8(output.stderr).unwrap().ends_with("mcm: secret mcm/uid-a cannot be read\n"));
    assert!(vm.boot("bash").status.success());
    assert_eq!((vm.config().unwrap(), vm.has_secret()), (CONFIG.as_bytes().to_vec(), false));
}

#[tokio::test]
async fn a_secret_that_the_vm_may_not_delete_does_not_stop_it() {
    let vm = FakeVm::for_user_data(CONFIG.as_bytes()).await;
    vm.fail("delete-secret", 5);
    let output = vm.boot("bash");
    assert_eq!(
        (output.status.code(), vm.config().unwrap(), vm.has_secret()),
        (Some(1), CONFIG.as_bytes().to_vec(), true)
    );
    assert!(vm.boot("bash").status.success());
    assert!(!vm.has_secret());
}

/// An image of a VM contains its files.
#[tokio::test]
async fn another_instance_does_not_get_the_user_data() {
    let vm = FakeVm::for_user_data(CONFIG.as_bytes()).await;
    vm.boot("bash");
    vm.belongs_to("i-2");
    assert_eq!(vm.config(), None);
    assert!(!vm.boot("bash").status.success(), "the secret is gone");
    assert_eq!(vm.config(), None);
}
