//! The second half of the suite: what each driver reads, finds, sends and returns, by the data of its cloud.
//!
//! A driver implements [`CloudProfile`] for its fake and lists the cases with [`profile_suite`](crate::profile_suite). The samples for
//! users are read from `templates/<cloud>`, and classes of Gardener's extension from `gardener.yaml` beside the tests of the driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::{
    decode::{YamlLimits, yaml, yaml_documents},
    machine::{MachineClass, MachineDeployment},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Recorder, bootstrap, code,
    matrix::Case,
    request as request_of,
    server::{Fault, Reply},
    suite::World,
    with_id,
};
use crate::{
    Code, Driver, DriverObserver, ListedVm, MachineRequest, SecretData,
    cloud::RequestReporter,
    conformance::{ConformanceOutcome, ConformanceSubject, run},
    inspection::ResourcePresence,
    spec::{ClassProblems, FieldProblem},
};

/// The name of the Machine of most cases.
pub const NAME: &str = "m-1";

/// The purpose of a request, and how many succeeded and failed.
pub type RequestCount = (&'static str, usize, usize);

/// The requests of a VM's life, as they are observed.
#[derive(Clone, Copy, Debug)]
pub struct RequestCounts {
    /// All requests of a creation.
    pub create: &'static [RequestCount],
    /// All requests of a list whose first answer cannot be read.
    pub list: &'static [RequestCount],
    /// All requests of a deletion by provider ID.
    pub delete: &'static [RequestCount],
    /// Further requests are allowed, whose number depends on time.
    pub has_more: bool,
}

/// Classes as changes of the usual class. `null` removes a field.
#[derive(Clone, Debug)]
pub struct ClassChanges {
    /// A class that is refused: a field of another type.
    pub invalid: Value,
    /// A class that can create no VM any more, but still finds those that it has.
    pub spoilt: Value,
    /// A class of another cluster.
    pub foreign: Value,
    /// A class without markers.
    pub unmarked: Value,
    /// A class whose VMs are in the list of the usual class.
    pub same_list: Value,
    /// Classes with another list.
    pub other_lists: Vec<Value>,
}

/// A VM as the driver shows it after its creation.
#[derive(Clone, Debug, Default)]
pub struct ExpectedVm {
    /// The provider ID.
    pub provider_id: String,
    /// The name of the Node.
    pub node_name: String,
    /// The provider ID of the Node, where it is another.
    pub node_provider_id: Option<String>,
    /// The zone, if the cloud shows it.
    pub zone: Option<String>,
    /// Type and address.
    pub addresses: Vec<String>,
    /// The state after the creation.
    pub created: String,
    /// The state after the deletion.
    pub deleted: Option<String>,
    /// The state after the deletion of a VM that does not exist.
    pub absent: Option<String>,
}

/// A resource that does not exist: its name in the fake, the class as changes of [`CloudProfile::needs`], and the findings.
pub type AbsentResource = (&'static str, Value, Vec<&'static str>);

/// A permission and the calls that need it.
pub type PermittedCalls = (&'static str, &'static [&'static str]);

/// A Secret with parts of the text of each error and each warning.
pub type SecretCase = (SecretData, &'static [&'static str], &'static [&'static str]);

/// The data of a cloud for the cases of [`profile_suite`](crate::profile_suite).
pub trait CloudProfile: World {
    /// The name in `MachineClass.provider`.
    const NAME: &'static str;
    /// The folder below `templates` and `src/drivers`.
    const FOLDER: &'static str;
    /// The call that lists VMs.
    const LIST: &'static str;
    /// The observed requests.
    const COUNTS: RequestCounts;
    /// The CSI driver whose volumes the driver finds.
    const CSI: Option<&'static str>;
    /// Paths of warnings about each class.
    const WARNINGS: &'static [&'static str] = &[];
    /// Paths of warnings about the classes of Gardener's extension.
    const GARDENER_WARNINGS: &'static [&'static str] = &[];
    /// True if the list of a class may have the VMs of a class without markers.
    const IS_UNMARKED_LISTED: bool = true;
    /// Calls that the life of a VM does not need.
    const UNUSED: &'static [&'static str] = &[];
    /// Calls that a life without faults does not need.
    const RARE: &'static [&'static str] = &[];
    /// Calls whose answer may quote the credentials.
    const QUOTING: &'static [&'static str] = &[Self::CALLS.create];

    /// A driver for the same cloud whose requests are observed.
    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver>;

    /// The usual class with changes.
    fn class_with(&self, changes: &Value) -> MachineClass;

    /// Classes as changes of the usual class.
    fn changes() -> ClassChanges;

    /// The classes with which the driver conforms, as changes of the usual class.
    fn conforming() -> Vec<Value> {
        vec![json!({})]
    }

    /// The changes of the cloud take long, VMs are shown late, and lists have small pages.
    fn slow(&self);

    /// Four of ten calls fail.
    fn storm(&self, faults: Vec<Fault>);

    /// The error of a cloud that is busy.
    fn busy() -> Reply {
        Self::error(Case::Throttle)
    }

    /// VMs, and all resources that belong to them.
    fn resources(&self) -> usize {
        self.vms()
    }

    /// The VM of [`NAME`], after its creation.
    fn expected(&self) -> ExpectedVm;

    /// Provider IDs of the VM and others, and whether they find the VM.
    fn provider_ids(id: &str) -> Vec<(String, bool)>;

    /// The tags of the only VM, if the driver changes tags.
    fn tags(&self) -> Value {
        Value::Null
    }

    /// The tags of a VM of [`NAME`] after another provider adopted it, if the driver changes tags.
    fn released(&self) -> Value {
        Value::Null
    }

    /// The user data of a VM, as the cloud has them.
    fn user_data_of(&self, name: &str) -> Vec<u8>;

    /// User data as they reach the cloud.
    fn sent_user_data(data: &[u8]) -> &[u8] {
        data
    }

    /// A class for bootstrap data, as changes of the usual class.
    fn bootstrap_class(_: &[u8]) -> Value {
        json!({})
    }

    /// The request whose calls are counted.
    fn counted_request(&self) -> MachineRequest {
        self.request_of(NAME)
    }

    /// The Secret of the templates, with what a template cannot have.
    fn template_secret(data: SecretData) -> SecretData {
        data
    }

    /// True for a Secret that needs no flag of the process.
    fn needs_no_flag(data: &SecretData) -> bool;

    /// The Secret of a class of Gardener's extension.
    fn gardener_secret(&self) -> SecretData {
        self.valid_secret()
    }

    /// Gives a class of Gardener's extension the names of the fake.
    fn fit(_: &mut MachineClass) {}

    /// The class of a live check, as changes of the usual class.
    fn needs() -> Value {
        json!({})
    }

    /// Prepares the fake of a live check.
    fn furnish(&self) {}

    /// The findings of a live check: path, presence and text.
    fn findings(&self) -> Vec<String>;

    /// The part of the text of a finding that is the same each time.
    fn finding_text(text: &str) -> &str {
        text
    }

    /// Removes a resource.
    fn remove(&self, _: &'static str) {}

    /// Resources that a live check misses.
    fn absent_resources() -> Vec<AbsentResource>;

    /// The names of all calls so far.
    fn sent(&self) -> BTreeSet<String>;

    /// The permissions of `config/permissions`, each with the calls that need it. Without a name for calls that need none.
    fn permissions() -> &'static [PermittedCalls];

    /// The usual Secret.
    fn valid_secret(&self) -> SecretData {
        self.request_of(NAME).secret
    }

    /// Secrets with wrong credentials, each with `another-` in it.
    fn wrong_secrets(&self) -> Vec<SecretData>;

    /// Secrets with other credentials that are right.
    fn other_secrets(&self) -> Vec<SecretData> {
        Vec::new()
    }

    /// Secrets that lead to hosts that are not allowed.
    fn secrets_elsewhere(&self) -> Vec<SecretData>;

    /// Secrets and their problems.
    fn secret_cases(&self) -> Vec<SecretCase>;

    /// The classes for these Secrets, as changes of the usual class.
    fn secret_classes() -> Vec<Value> {
        vec![json!({})]
    }

    /// The error of an invalid request with this text.
    fn refusal(&self, text: &str) -> Reply;

    /// The credentials of the usual Secret, as an error may quote them.
    fn quoted() -> String {
        Self::SECRETS.iter().filter(|secret| **secret != "hunter2").copied().collect::<Vec<_>>().join(" ")
    }

    /// A part of each quoted secret.
    fn hidden() -> Vec<String> {
        Self::SECRETS.iter().map(|secret| (*secret).to_owned()).collect()
    }
}

/// Registers the cases of the profile as tests of a world: all cases of every cloud, or the listed ones.
#[macro_export]
macro_rules! profile_suite {
    ($world:ty) => {
        $crate::profile_suite! { $world:
            a_class_shares_a_list_with_those_of_the_same_markers
            a_host_that_is_not_allowed_gets_no_credentials
            a_provider_id_finds_its_vm_and_leads_nowhere_else
            a_vm_lives_from_create_to_delete
            a_vm_of_a_class_that_became_invalid_can_be_deleted
            an_absent_resource_is_named
            an_adoption_takes_a_vm_off_the_list_and_puts_it_back
            bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm
            classes_of_gardener_have_no_problems
            each_attempt_of_a_request_is_counted_by_its_purpose
            everything_that_a_class_needs_is_looked_for
            machines_of_classes_of_gardener_live_from_create_to_delete
            new_credentials_apply_at_once
            no_text_contains_a_secret
            the_driver_conforms
            the_driver_conforms_at_a_bad_moment_of_the_cloud
            the_driver_conforms_where_the_cloud_is_slow
            the_permissions_are_those_of_the_calls
            the_problems_of_a_secret_are_found_without_a_call
            the_templates_are_valid_and_fit_each_other
            wrong_credentials_are_all_that_is_reported
        }
    };
    ($world:ty: $($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            $crate::testing::profile::$case::<$world>().await;
        }
    )*};
}

/// A spec with some of its fields replaced; `null` removes one.
pub fn changed(mut spec: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// A sample for users.
fn template<W: CloudProfile, T: DeserializeOwned>(name: &str) -> T {
    yaml(&file(&format!("templates/{}/{name}.yaml", W::FOLDER)), YamlLimits::FILES).unwrap()
}

/// The classes of Gardener's extension.
fn gardener_classes<W: CloudProfile>() -> Vec<MachineClass> {
    let text = file(&format!("src/drivers/{}/tests/gardener.yaml", W::FOLDER));
    let (classes, error) = yaml_documents(&text, YamlLimits::FILES);
    assert!(error.is_none() && !classes.is_empty(), "{error:?}");
    classes
}

fn texts(problems: &[FieldProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// The request for a class, with the usual Secret.
fn request_for<W: CloudProfile>(world: &W, name: &str, class: MachineClass) -> MachineRequest {
    let usual = world.request_of(name);
    MachineRequest { class: Arc::new(class), ..usual }
}

/// The VMs of the class, by provider ID.
async fn listed(driver: &dyn Driver, request: &MachineRequest) -> BTreeMap<String, ListedVm> {
    driver.list(&request.class, &request.secret).await.unwrap()
}

/// A class without errors, and with warnings at these paths only.
fn assert_valid<W: CloudProfile>(problems: &ClassProblems, warnings: &[&str]) {
    assert_eq!(texts(&problems.errors), [""; 0]);
    let mut found: Vec<&str> = problems.warnings.iter().map(|warning| warning.path.as_str()).collect();
    let mut expected: Vec<&str> = W::WARNINGS.iter().chain(warnings).copied().collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{:?}", problems.warnings);
}

/// Template, class and Secret as a user applies them.
pub async fn the_templates_are_valid_and_fit_each_other<W: CloudProfile>() {
    let class: MachineClass = template::<W, _>("machine-class");
    let secret: Value = template::<W, _>("secret");
    let deployment: MachineDeployment = template::<W, _>("machine-deployment");
    let driver = W::new().await.patient();
    assert_valid::<W>(&driver.validate(&class), &[]);
    assert_eq!(Some(deployment.spec.template.spec.class.name.as_str()), class.metadata.name.as_deref());
    assert_eq!(class.secret_ref.as_ref().unwrap().name, secret["metadata"]["name"]);
    let data = secret["stringData"].as_object().unwrap();
    let data = data.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().as_bytes().to_vec()));
    let data = W::template_secret(SecretData(data.collect()));
    assert_eq!(driver.secret_problems(&class, &data), ClassProblems::default());
    assert!(W::needs_no_flag(&data));
}

/// All of them, as Gardener's extension writes them.
pub async fn classes_of_gardener_have_no_problems<W: CloudProfile>() {
    let world = W::new().await;
    let driver = world.patient();
    for class in gardener_classes::<W>() {
        assert_valid::<W>(&driver.validate(&class), W::GARDENER_WARNINGS);
        assert_eq!(driver.secret_problems(&class, &world.gardener_secret()), ClassProblems::default());
    }
}

/// Only names that another cloud has are replaced.
pub async fn machines_of_classes_of_gardener_live_from_create_to_delete<W: CloudProfile>() {
    let world = W::new().await;
    let driver = world.patient();
    for (number, mut class) in gardener_classes::<W>().into_iter().enumerate() {
        W::fit(&mut class);
        let request = request_of(&format!("m-{number}"), &format!("uid-{number}"), class, world.valid_secret(), "");
        let vm = driver.create(&request).await.unwrap();
        assert_eq!(listed(&*driver, &request).await.keys().collect::<Vec<_>>(), [&vm.provider_id]);
        driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
        assert_eq!(world.resources(), 0);
    }
    world.check_requests();
}

/// Byte for byte, but for what the driver documents.
pub async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm<W: CloudProfile>() {
    let world = W::new().await;
    let driver = world.patient();
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let name = format!("m-{number}");
        let mut request = request_for(&world, &name, world.class_with(&W::bootstrap_class(data)));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        driver.create(&request).await.unwrap();
        let sent = world.user_data_of(&name);
        assert!(sent == W::sent_user_data(data), "{what}: {}", String::from_utf8_lossy(&sent));
    }
}

/// Repeated attempts as well.
pub async fn each_attempt_of_a_request_is_counted_by_its_purpose<W: CloudProfile>() {
    let world = W::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = world.observed(RequestReporter::for_provider(W::NAME, &observer));
    let check = |expected: &[RequestCount]| {
        let mut counted = recorder.take(W::NAME);
        counted.retain(|count| !W::COUNTS.has_more || expected.contains(count));
        assert_eq!(counted, expected);
    };
    let request = world.counted_request();
    let vm = driver.create(&request).await.unwrap();
    check(W::COUNTS.create);
    world.switch().fail(W::LIST, Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    check(W::COUNTS.list);
    driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    check(W::COUNTS.delete);
}

fn volumes<W: CloudProfile>() -> Vec<(PersistentVolumeSpec, Option<String>)> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let handle = "/volumes/handle-1";
    let csi = json!({"csi": {"driver": W::CSI.unwrap_or("csi.example.com"), "volumeHandle": handle}});
    vec![(volume(csi), W::CSI.map(|_| handle.to_owned())), (volume(json!({"hostPath": {"path": "/tmp"}})), None)]
}

/// No check fails, and only an initialization that the driver lacks is skipped.
async fn assert_conforms<W: CloudProfile>(world: &W, spec: &Value) {
    let (driver, changes) = (world.patient(), W::changes());
    let subject = ConformanceSubject {
        driver: &*driver,
        class: world.class_with(spec),
        invalid_class: Some(world.class_with(&changes.invalid)),
        foreign_class: Some(world.class_with(&changes.foreign)),
        secret: world.valid_secret(),
        volumes: volumes::<W>(),
        prefix: "conformance".to_owned(),
    };
    let report = run(&subject).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    let skipped = report.results.iter().filter(|one| one.outcome == ConformanceOutcome::Skipped).count();
    assert_eq!(skipped, usize::from(!driver.capabilities().initialize), "\n{report}");
}

/// The suite for drivers in any language.
pub async fn the_driver_conforms<W: CloudProfile>() {
    for spec in W::conforming() {
        let world = W::new().await;
        assert_conforms(&world, &spec).await;
        assert_eq!(world.resources(), 0, "the suite leaves nothing behind");
        world.check_requests();
    }
}

/// VMs start and end late.
pub async fn the_driver_conforms_where_the_cloud_is_slow<W: CloudProfile>() {
    let world = W::new().await;
    world.slow();
    assert_conforms(&world, W::conforming().last().unwrap()).await;
    assert_eq!(world.vms(), 0, "the suite leaves nothing behind");
}

/// The cloud throttles, and answers are lost.
pub async fn the_driver_conforms_at_a_bad_moment_of_the_cloud<W: CloudProfile>() {
    let world = W::new().await;
    world.storm(vec![Fault::LostAnswer, Fault::Error(W::busy()), Fault::Status(502), Fault::Malformed]);
    assert_conforms(&world, &W::conforming()[0]).await;
    world.check_requests();
}

/// Creation, look-ups, list and deletion, and what the driver returns each time.
pub async fn a_vm_lives_from_create_to_delete<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    assert_eq!(code(driver.status(&request).await), Code::NotFound);
    let vm = driver.create(&request).await.unwrap();
    let expected = world.expected();
    assert_eq!((&vm.provider_id, &vm.node_name), (&expected.provider_id, &expected.node_name));
    assert_eq!((&vm.node_provider_id, &vm.zone), (&expected.node_provider_id, &expected.zone));
    let addresses: Vec<String> = vm.addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
    assert_eq!(addresses, expected.addresses);
    assert_eq!((vm.last_known_state.as_ref(), &vm.halted), (Some(&expected.created), &None));
    let known = with_id(request.clone(), &vm.provider_id);
    for request in [&request, &known] {
        let found = driver.status(request).await.unwrap();
        assert_eq!((&found.provider_id, &found.node_name), (&vm.provider_id, &vm.node_name));
        assert_eq!((&found.zone, &found.addresses, &found.halted), (&vm.zone, &vm.addresses, &None));
        assert_eq!(found.node_provider_id, vm.node_provider_id);
        if driver.capabilities().initialize {
            assert_eq!(driver.initialize(request).await.unwrap().provider_id, vm.provider_id);
        }
    }
    let owner = Some(request.owner.clone());
    assert_eq!(listed(&*driver, &request).await, [(vm.provider_id.clone(), ListedVm::new(NAME, owner))].into());
    assert_eq!(driver.delete(&known).await.unwrap(), expected.deleted);
    assert_eq!(world.resources(), 0);
    assert_eq!(code(driver.status(&known).await), Code::NotFound);
    assert_eq!(driver.delete(&known).await.unwrap(), expected.absent, "nothing there is success");
    assert_eq!(listed(&*driver, &request).await, BTreeMap::new());
    let calls = |call: &str| world.switch().calls(call);
    assert_eq!((calls(W::CALLS.create), calls(W::CALLS.delete)), (1, 1));
    assert!(W::UNUSED.iter().all(|call| calls(call) == 0));
    world.check_requests();
}

/// Only the fields that find VMs are needed.
pub async fn a_vm_of_a_class_that_became_invalid_can_be_deleted<W: CloudProfile>() {
    let world = W::new().await;
    let driver = world.patient();
    driver.create(&world.request_of(NAME)).await.unwrap();
    let request = request_for(&world, NAME, world.class_with(&W::changes().spoilt));
    assert_eq!(code(driver.create(&request).await), Code::InvalidArgument);
    driver.delete(&request).await.unwrap();
    assert_eq!(world.resources(), 0);
}

/// Provider IDs of other programs for the same VM are read, and others send nothing.
pub async fn a_provider_id_finds_its_vm_and_leads_nowhere_else<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let vm = driver.create(&request).await.unwrap();
    let calls = || [W::CALLS.look, W::CALLS.look_by_id, W::CALLS.delete].map(|call| world.switch().calls(call));
    for (id, is_found) in W::provider_ids(&vm.provider_id) {
        let (known, before) = (with_id(request.clone(), &id), calls());
        if is_found {
            assert_eq!(driver.status(&known).await.unwrap().provider_id, vm.provider_id, "{id}");
        } else {
            assert_eq!(code(driver.status(&known).await), Code::InvalidArgument, "{id}");
            assert_eq!(code(driver.delete(&known).await), Code::InvalidArgument, "{id}");
            assert_eq!((world.vms(), calls()), (1, before), "{id}");
        }
    }
    let (last, _) = W::provider_ids(&vm.provider_id).into_iter().rfind(|(_, is_found)| *is_found).unwrap();
    driver.delete(&with_id(request, &last)).await.unwrap();
    assert_eq!(world.vms(), 0);
}

/// A list of one class may stand for that of another only if it has all of its VMs.
pub async fn a_class_shares_a_list_with_those_of_the_same_markers<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, changes) = (world.patient(), W::changes());
    let may_list = |other: &Value| driver.may_list(&world.class_with(&json!({})), &world.class_with(other));
    assert!(may_list(&changes.same_list));
    assert_eq!(may_list(&changes.unmarked), W::IS_UNMARKED_LISTED);
    for other in changes.other_lists.iter().chain([&changes.foreign]) {
        assert!(!may_list(other), "{other}");
    }
    let unmarked = world.class_with(&changes.unmarked);
    let usual = world.class_with(&json!({}));
    assert!(driver.may_list(&unmarked, &usual), "of a class without markers nothing is certain");
}

/// Tags in a list have no order.
fn sorted(mut tags: Value) -> Value {
    if let Value::Array(tags) = &mut tags {
        tags.sort_by_key(ToString::to_string);
    }
    tags
}

/// The other provider has the VM meanwhile, and its Machine has another UID.
pub async fn an_adoption_takes_a_vm_off_the_list_and_puts_it_back<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    if !driver.capabilities().tag {
        let error = driver.tag(&request, true).await.unwrap_err();
        assert!(error.code == Code::Unimplemented && error.message.contains("change them by hand"), "{error}");
        assert!(world.sent().is_empty());
        return;
    }
    let vm = driver.create(&request).await.unwrap();
    let before = sorted(world.tags());
    let known = with_id(request.clone(), &vm.provider_id);
    driver.tag(&known, false).await.unwrap();
    assert_eq!(listed(&*driver, &known).await, BTreeMap::new());
    assert_eq!(sorted(world.tags()), sorted(world.released()), "other tags stay");
    assert_eq!(code(driver.status(&request).await), Code::NotFound, "only its ID finds it");
    assert_eq!(driver.status(&known).await.unwrap().provider_id, vm.provider_id);
    let adopted = with_id(world.request_with(NAME, "another"), &vm.provider_id);
    driver.tag(&adopted, true).await.unwrap();
    let owner = Some(request.owner.clone());
    assert_eq!(listed(&*driver, &known).await, [(vm.provider_id, ListedVm::new(NAME, owner))].into());
    assert_eq!(sorted(world.tags()), before);
    world.check_requests();
}

/// Path, presence and text of each finding.
async fn findings<W: CloudProfile>(world: &W, class: &MachineClass, secret: &SecretData) -> Vec<String> {
    let found = world.patient().inspect(class, secret).await.unwrap();
    found.iter().map(|one| format!("{} {:?}: {}", one.path, one.presence, W::finding_text(&one.text))).collect()
}

/// A live check creates nothing.
pub async fn everything_that_a_class_needs_is_looked_for<W: CloudProfile>() {
    let world = W::new().await;
    world.furnish();
    let found = findings(&world, &world.class_with(&W::needs()), &world.valid_secret()).await;
    assert_eq!(found, world.findings());
    assert_eq!((world.resources(), world.switch().calls(W::CALLS.create)), (0, 0), "nothing was created");
    world.check_requests();
}

/// And nothing else.
pub async fn an_absent_resource_is_named<W: CloudProfile>() {
    for (what, changes, expected) in W::absent_resources() {
        let world = W::new().await;
        world.furnish();
        world.remove(what);
        let class = world.class_with(&changed(W::needs(), &changes));
        let mut found = findings(&world, &class, &world.valid_secret()).await;
        found.retain(|finding| finding.contains(" Missing: "));
        let found: Vec<String> = found.into_iter().map(|finding| finding.replacen(" Missing: ", ": ", 1)).collect();
        assert_eq!(found, expected, "{what} {changes}");
    }
}

/// The permissions of a file of `config/permissions`: actions, privileges, roles, and verbs with their resources.
pub fn permissions_in(file: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    add_permissions(file, &mut all);
    all
}

fn add_permissions(value: &Value, all: &mut BTreeSet<String>) {
    const LISTS: [&str; 6] = ["Action", "Actions", "calls", "includedPermissions", "privileges", "roles"];
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match value {
        Value::Array(values) => values.iter().for_each(|value| add_permissions(value, all)),
        Value::Object(fields) => {
            for resource in texts(&value["resources"]) {
                all.extend(texts(&value["verbs"]).into_iter().map(|verb| format!("{verb} {resource}")));
            }
            for (key, value) in fields {
                if LISTS.contains(&key.as_str()) {
                    all.extend(texts(value));
                } else {
                    add_permissions(value, all);
                }
            }
        }
        _ => {}
    }
}

/// The least that the driver needs, and nothing more.
pub async fn the_permissions_are_those_of_the_calls<W: CloudProfile>() {
    let file = ["json", "yaml"].map(|form| format!("config/permissions/{}.{form}", W::FOLDER));
    let text = file.iter().find_map(|path| fs::read_to_string(root().join(path)).ok()).unwrap();
    let granted = permissions_in(&yaml(&text, YamlLimits::FILES).unwrap());
    let named: BTreeSet<String> =
        W::permissions().iter().map(|(name, _)| (*name).to_owned()).filter(|name| !name.is_empty()).collect();
    assert_eq!(granted, named);
    let world = W::new().await;
    world.furnish();
    let (driver, request) = (world.patient(), request_for(&world, NAME, world.class_with(&W::needs())));
    driver.inspect(&request.class, &request.secret).await.unwrap();
    if driver.capacity_key(&request.class).is_some() {
        driver.capacity(&request.class, &request.secret).await.unwrap();
    }
    drop(driver.status(&request).await);
    let vm = driver.create(&request).await.unwrap();
    listed(&*driver, &request).await;
    let known = with_id(request, &vm.provider_id);
    driver.status(&known).await.unwrap();
    for is_listed in [false, true].into_iter().filter(|_| driver.capabilities().tag) {
        driver.tag(&known, is_listed).await.unwrap();
    }
    driver.delete(&known).await.unwrap();
    let sent: BTreeSet<String> =
        world.sent().into_iter().chain(W::RARE.iter().map(|call| (*call).to_owned())).collect();
    let permitted: BTreeSet<String> =
        W::permissions().iter().flat_map(|(_, calls)| calls.iter().map(|call| (*call).to_owned())).collect();
    assert_eq!(sent, permitted);
}

/// Nothing else is known then.
pub async fn wrong_credentials_are_all_that_is_reported<W: CloudProfile>() {
    let world = W::new().await;
    for secret in world.wrong_secrets() {
        let found = world.patient().inspect(&world.class_with(&json!({})), &secret).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
        assert!(!found[0].text.contains("another-"), "{}", found[0].text);
    }
}

/// A driver has the Secret of each call.
pub async fn new_credentials_apply_at_once<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    for secret in world.wrong_secrets() {
        let error = driver.create(&MachineRequest { secret, ..request.clone() }).await.unwrap_err();
        assert_eq!(error.code, Code::Unauthenticated, "{error}");
        assert!(!error.message.contains("another-"), "{error}");
    }
    driver.create(&request).await.unwrap();
    for secret in world.other_secrets() {
        driver.status(&MachineRequest { secret, ..request.clone() }).await.unwrap();
    }
    for secret in world.wrong_secrets() {
        assert_eq!(code(driver.status(&MachineRequest { secret, ..request.clone() }).await), Code::Unauthenticated);
    }
    world.check_requests();
}

/// Neither without TLS nor elsewhere.
pub async fn a_host_that_is_not_allowed_gets_no_credentials<W: CloudProfile>() {
    let world = W::new().await;
    for secret in world.secrets_elsewhere() {
        let error = world.patient().create(&MachineRequest { secret, ..world.request_of(NAME) }).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
        assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
    }
}

/// `mcm class check` reads the Secret as well.
pub async fn the_problems_of_a_secret_are_found_without_a_call<W: CloudProfile>() {
    let world = W::new().await;
    let driver = world.patient();
    for class in W::secret_classes() {
        for (number, (secret, errors, warnings)) in world.secret_cases().into_iter().enumerate() {
            let problems = driver.secret_problems(&world.class_with(&class), &secret);
            for (found, expected) in [(texts(&problems.errors), errors), (texts(&problems.warnings), warnings)] {
                let fits = found.iter().zip(expected).all(|(found, expected)| found.contains(expected));
                assert!(fits && found.len() == expected.len(), "case {number}: {found:?} is not {expected:?}");
            }
        }
    }
}

/// The cloud may quote its requests.
pub async fn no_text_contains_a_secret<W: CloudProfile>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let quote = format!("invalid request: {} and user data #!/bin/sh\nhunter2-hunter2 [x", W::quoted());
    let hidden = W::hidden();
    for call in W::QUOTING {
        world.switch().fail(call, Fault::Error(world.refusal(&quote)), 1);
        let error = driver.create(&request).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
        for secret in hidden.iter().map(String::as_str).chain(["hunter2", "aHVudGVyMi1"]) {
            assert!(!error.message.contains(secret), "{error}");
        }
        assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    }
    let debug = format!("{:?}", request.secret);
    assert!(hidden.iter().all(|secret| !debug.contains(secret)), "{debug}");
}
