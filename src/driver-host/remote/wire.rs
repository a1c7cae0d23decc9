//! Converts requests and results to messages and back. It trusts neither side: values read from a message are checked
//! elsewhere.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{NodeAddress, PersistentVolumeSpec};
use serde::{Serialize, de::DeserializeOwned};

use super::proto;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    capacity::{GpuCapacity, VmCapacity, architecture},
    code::Code,
    error::DriverError,
    inspection::{ResourceFinding, ResourcePresence},
    interface::{MachineRequest, SecretData},
    spec::{ClassProblems, FieldProblem},
    vm::{ListedVm, Vm, VmsByProviderId},
};

/// A result without content, such as a message of another program. The outcome is unknown.
pub(super) fn nothing<T>() -> Result<T, DriverError> {
    Err(DriverError::new(Code::Unknown, "the driver returned neither a result nor a failure"))
}

fn to_json(object: &impl Serialize) -> Result<Vec<u8>, DriverError> {
    serde_json::to_vec(object)
        .map_err(|error| DriverError::new(Code::Internal, format!("write an object for the driver: {error}")))
}

/// The error names no values: the object could contain anything.
fn from_json<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, DriverError> {
    serde_json::from_slice(json).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        DriverError::new(Code::InvalidArgument, format!("the {what} in the request cannot be read at {place}"))
    })
}

pub(super) fn machine_request(provider: &str, request: &MachineRequest) -> Result<proto::MachineRequest, DriverError> {
    Ok(proto::MachineRequest {
        provider: provider.to_owned(),
        machine_json: to_json(&*request.machine)?,
        class_json: to_json(&*request.class)?,
        secret: secret(&request.secret),
        owner: request.owner.clone(),
        may_pause: request.may_pause,
    })
}

pub(super) fn read_machine_request(message: proto::MachineRequest) -> Result<MachineRequest, DriverError> {
    Ok(MachineRequest {
        machine: Arc::new(from_json("Machine", &message.machine_json)?),
        class: Arc::new(read_class(&message.class_json)?),
        secret: read_secret(message.secret),
        owner: message.owner,
        may_pause: message.may_pause,
    })
}

pub(super) fn class(class: &MachineClass) -> Result<Vec<u8>, DriverError> {
    to_json(class)
}

pub(super) fn read_class(json: &[u8]) -> Result<MachineClass, DriverError> {
    from_json("MachineClass", json)
}

pub(super) fn secret(secret: &SecretData) -> HashMap<String, Vec<u8>> {
    secret.0.clone().into_iter().collect()
}

pub(super) fn read_secret(secret: HashMap<String, Vec<u8>>) -> SecretData {
    SecretData(secret.into_iter().collect())
}

pub(super) fn volumes(specs: &[PersistentVolumeSpec]) -> Result<Vec<Vec<u8>>, DriverError> {
    specs.iter().map(to_json).collect()
}

pub(super) fn read_volumes(specs: &[Vec<u8>]) -> Result<Vec<PersistentVolumeSpec>, DriverError> {
    specs.iter().map(|json| from_json("volume", json)).collect()
}

pub(super) fn vm(vm: Vm) -> proto::Vm {
    let address = |address: NodeAddress| proto::Address { r#type: address.type_, address: address.address };
    proto::Vm {
        provider_id: vm.provider_id,
        node_name: vm.node_name,
        addresses: vm.addresses.into_iter().map(address).collect(),
        last_known_state: vm.last_known_state,
        zone: vm.zone,
        halted: vm.halted,
        node_provider_id: vm.node_provider_id,
    }
}

fn read_vm(vm: proto::Vm) -> Vm {
    let address = |address: proto::Address| NodeAddress { type_: address.r#type, address: address.address };
    Vm {
        provider_id: vm.provider_id,
        node_name: vm.node_name,
        addresses: vm.addresses.into_iter().map(address).collect(),
        last_known_state: vm.last_known_state,
        zone: vm.zone,
        halted: vm.halted,
        node_provider_id: vm.node_provider_id,
    }
}

pub(super) fn failure(error: DriverError) -> proto::Failure {
    proto::Failure {
        code: error.code as i32,
        message: error.message,
        last_known_state: error.last_known_state,
        vm: error.vm.map(|one| vm(*one)),
        call_again_after_ms: error.call_again_in.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
    }
}

pub(super) fn read_failure(failure: proto::Failure) -> DriverError {
    let code = Code::ALL.into_iter().find(|code| *code as i32 == failure.code);
    DriverError {
        last_known_state: failure.last_known_state,
        vm: failure.vm.map(|vm| Box::new(read_vm(vm))),
        call_again_in: failure.call_again_after_ms.map(Duration::from_millis),
        ..DriverError::new(code.unwrap_or(Code::Unknown), failure.message)
    }
}

pub(super) fn vm_result(result: Result<Vm, DriverError>) -> proto::VmResponse {
    use proto::vm_response::Result::{Failure, Vm};
    let result = match result {
        Ok(found) => Vm(vm(found)),
        Err(error) => Failure(failure(error)),
    };
    proto::VmResponse { result: Some(result) }
}

pub(super) fn read_vm_result(response: proto::VmResponse) -> Result<Vm, DriverError> {
    use proto::vm_response::Result::{Failure, Vm};
    match response.result {
        Some(Vm(vm)) => Ok(read_vm(vm)),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn deletion(result: Result<Option<String>, DriverError>) -> proto::DeleteResponse {
    use proto::delete_response::Result::{Deleted, Failure};
    let result = match result {
        Ok(last_known_state) => Deleted(proto::Deleted { last_known_state }),
        Err(error) => Failure(failure(error)),
    };
    proto::DeleteResponse { result: Some(result) }
}

pub(super) fn read_deletion(response: proto::DeleteResponse) -> Result<Option<String>, DriverError> {
    use proto::delete_response::Result::{Deleted, Failure};
    match response.result {
        Some(Deleted(deleted)) => Ok(deleted.last_known_state),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn problems(result: Result<ClassProblems, DriverError>) -> proto::ValidateResponse {
    use proto::validate_response::Result::{Failure, Problems};
    let one = |problem: FieldProblem| proto::Problem { path: problem.path, text: problem.text };
    let result = match result {
        Ok(problems) => Problems(proto::Problems {
            errors: problems.errors.into_iter().map(one).collect(),
            warnings: problems.warnings.into_iter().map(one).collect(),
        }),
        Err(error) => Failure(failure(error)),
    };
    proto::ValidateResponse { result: Some(result) }
}

pub(super) fn read_problems(response: proto::ValidateResponse) -> Result<ClassProblems, DriverError> {
    use proto::validate_response::Result as Outcome;
    match response.result {
        Some(Outcome::Problems(found)) => {
            let mut problems = ClassProblems::default();
            found.errors.into_iter().for_each(|one| problems.error(one.path, one.text));
            found.warnings.into_iter().for_each(|one| problems.warning(one.path, one.text));
            Ok(problems)
        }
        Some(Outcome::Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn volume_ids(result: Result<Vec<String>, DriverError>) -> proto::VolumeIdsResponse {
    use proto::volume_ids_response::Result::{Failure, Volumes};
    let result = match result {
        Ok(ids) => Volumes(proto::Volumes { ids }),
        Err(error) => Failure(failure(error)),
    };
    proto::VolumeIdsResponse { result: Some(result) }
}

pub(super) fn read_volume_ids(response: proto::VolumeIdsResponse) -> Result<Vec<String>, DriverError> {
    use proto::volume_ids_response::Result::{Failure, Volumes};
    match response.result {
        Some(Volumes(volumes)) => Ok(volumes.ids),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn inspection(result: Result<Vec<ResourceFinding>, DriverError>) -> proto::InspectResponse {
    use proto::inspect_response::Result::{Failure, Findings};
    let one = |finding: ResourceFinding| {
        let presence = match finding.presence {
            ResourcePresence::Present => proto::Presence::Present,
            ResourcePresence::Missing => proto::Presence::Missing,
            ResourcePresence::Unknown => proto::Presence::Unspecified,
        };
        proto::Finding { path: finding.path, presence: presence as i32, text: finding.text }
    };
    let result = match result {
        Ok(findings) => Findings(proto::Findings { findings: findings.into_iter().map(one).collect() }),
        Err(error) => Failure(failure(error)),
    };
    proto::InspectResponse { result: Some(result) }
}

pub(super) fn read_inspection(response: proto::InspectResponse) -> Result<Vec<ResourceFinding>, DriverError> {
    use proto::inspect_response::Result::{Failure, Findings};
    let one = |finding: proto::Finding| {
        let presence = match finding.presence() {
            proto::Presence::Present => ResourcePresence::Present,
            proto::Presence::Missing => ResourcePresence::Missing,
            proto::Presence::Unspecified => ResourcePresence::Unknown,
        };
        ResourceFinding { path: finding.path, presence, text: finding.text }
    };
    match response.result {
        Some(Findings(found)) => Ok(found.findings.into_iter().map(one).collect()),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn capacity(result: Result<VmCapacity, DriverError>) -> proto::CapacityResponse {
    use proto::capacity_response::Result::{Capacity, Failure};
    let result = match result {
        Ok(vm) => Capacity(proto::VmCapacity {
            gpus: vm.gpus.as_ref().map(|gpus| gpus.count),
            gpu_resource: vm.gpus.and_then(|gpus| gpus.resource).unwrap_or_default().to_owned(),
            architecture: vm.architecture.unwrap_or_default().to_owned(),
            instance_type: vm.instance_type,
            region: vm.region,
            zone: vm.zone,
            cpus: vm.cpus,
            memory_mib: vm.memory_mib,
            disk_gib: vm.disk_gib,
        }),
        Err(error) => Failure(failure(error)),
    };
    proto::CapacityResponse { result: Some(result) }
}

/// Architectures and resources of GPUs without a word here are not known.
pub(super) fn read_capacity(response: proto::CapacityResponse) -> Result<VmCapacity, DriverError> {
    use proto::capacity_response::Result::{Capacity, Failure};
    match response.result {
        Some(Capacity(vm)) => Ok(VmCapacity {
            gpus: vm.gpus.map(|count| GpuCapacity::made_by(&vm.gpu_resource, count)),
            architecture: architecture(&vm.architecture),
            instance_type: vm.instance_type,
            region: vm.region,
            zone: vm.zone,
            cpus: vm.cpus,
            memory_mib: vm.memory_mib,
            disk_gib: vm.disk_gib,
        }),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

pub(super) fn tagging(result: Result<(), DriverError>) -> proto::TagResponse {
    use proto::tag_response::Result::{Failure, Tagged};
    let result = match result {
        Ok(()) => Tagged(proto::Tagged {}),
        Err(error) => Failure(failure(error)),
    };
    proto::TagResponse { result: Some(result) }
}

pub(super) fn read_tagging(response: proto::TagResponse) -> Result<(), DriverError> {
    use proto::tag_response::Result::{Failure, Tagged};
    match response.result {
        Some(Tagged(_)) => Ok(()),
        Some(Failure(failure)) => Err(read_failure(failure)),
        None => nothing(),
    }
}

/// VMs per message; even with the longest IDs and names a page stays below the limit of a message.
const PAGE: usize = 2_000;

/// The messages of a list, in order.
pub(super) fn list(result: Result<VmsByProviderId, DriverError>) -> Vec<proto::ListResponse> {
    use proto::list_response::Part;
    let parts = match result {
        Ok(all) => {
            let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
            let entry = |(provider_id, vm): (String, ListedVm)| proto::ListedVm {
                provider_id,
                machine_name: vm.machine,
                owner: vm.owner.unwrap_or_default(),
            };
            let vms: Vec<_> = all.into_iter().map(entry).collect();
            let pages = vms.chunks(PAGE).map(|page| Part::Page(proto::Page { vms: page.to_vec() }));
            pages.chain([Part::End(proto::End { count })]).collect()
        }
        Err(error) => vec![Part::Failure(failure(error))],
    };
    parts.into_iter().map(|part| proto::ListResponse { part: Some(part) }).collect()
}

/// Reads the messages of a list, in order.
#[derive(Debug, Default)]
pub(super) struct VmListReader {
    vms: VmsByProviderId,
    /// VMs in all pages.
    count: u64,
}

/// More than any cluster has.
const MOST_VMS: u64 = 1_000_000;

impl VmListReader {
    /// Takes the next message; the complete list after the last one.
    pub(super) fn take(&mut self, message: proto::ListResponse) -> Option<Result<VmsByProviderId, DriverError>> {
        use proto::list_response::Part;
        match message.part {
            Some(Part::Page(page)) => {
                for vm in page.vms {
                    self.count += 1;
                    if self.count > MOST_VMS {
                        return Some(wrong(format!("a list of more than {MOST_VMS} VMs")));
                    }
                    let entry = ListedVm::new(vm.machine_name, Some(vm.owner));
                    let kept = self.vms.entry(vm.provider_id).or_insert_with(|| entry.clone());
                    if *kept != entry {
                        // One provider ID for two machines or owners: no name is right.
                        kept.machine.clear();
                    }
                }
                None
            }
            Some(Part::End(end)) if end.count == self.count => Some(Ok(std::mem::take(&mut self.vms))),
            Some(Part::End(end)) => {
                Some(wrong(format!("a list that should have {} VMs, and has {}", end.count, self.count)))
            }
            Some(Part::Failure(failure)) => Some(Err(read_failure(failure))),
            None => Some(nothing()),
        }
    }

    /// There are no more messages.
    pub(super) fn broken_off<T>() -> Result<T, DriverError> {
        Err(DriverError::new(Code::Unavailable, "the list of the driver ended before it was complete"))
    }
}

fn wrong<T>(what: impl std::fmt::Display) -> Result<T, DriverError> {
    Err(DriverError::new(Code::Internal, format!("the driver returned {what}")))
}

/// The error of a broken call. A gRPC status never describes the VM, so the code is never `NotFound`, and never one
/// that makes controllers act, such as `ResourceExhausted` for a message that is too large.
pub(super) fn broken_call(status: &tonic::Status) -> DriverError {
    use tonic::Code as Grpc;
    let code = match status.code() {
        Grpc::Unavailable => Code::Unavailable,
        Grpc::ResourceExhausted if is_closed(status) => Code::Unavailable,
        Grpc::DeadlineExceeded | Grpc::Cancelled => Code::DeadlineExceeded,
        Grpc::Unauthenticated => Code::Unauthenticated,
        Grpc::PermissionDenied => Code::PermissionDenied,
        Grpc::Unimplemented | Grpc::ResourceExhausted => Code::Internal,
        _ => Code::Unknown,
    };
    let source = std::error::Error::source(status).map(|source| format!(": {}", innermost(source))).unwrap_or_default();
    let message = format!("the call failed with gRPC status {:?}: {}{source}", status.code(), status.message());
    DriverError::new(code, message)
}

/// A status concerns the connection, such as that the driver got too many pings (GOAWAY with ENHANCE_YOUR_CALM). One
/// that the driver sent has no source.
fn is_closed(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    error.source().map_or(error, innermost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_api::machine::any::{machine, machine_class};
    use proptest::{collection, option, prelude::*, sample::select};
    use prost::Message;
    use rstest::rstest;
    use serde_json::json;

    fn text() -> impl Strategy<Value = String> {
        select(vec!["", "a", "aws:///eu-1/i-7", "7µs [quoted]"]).prop_map(str::to_owned)
    }

    fn any_vm() -> impl Strategy<Value = Vm> {
        let address = (text(), text()).prop_map(|(type_, address)| NodeAddress { type_, address });
        let known = (option::of(text()), option::of(text()), option::of(text()), option::of(text()));
        (text(), text(), collection::vec(address, 0..3), known).prop_map(
            |(provider_id, node_name, addresses, (last_known_state, zone, halted, node_provider_id))| Vm {
                provider_id,
                node_provider_id,
                node_name,
                zone,
                addresses,
                last_known_state,
                halted,
            },
        )
    }

    fn any_error() -> impl Strategy<Value = DriverError> {
        (select(Code::ALL.to_vec()), text(), option::of(text()), option::of(any_vm().prop_map(Box::new))).prop_map(
            |(code, message, last_known_state, vm)| DriverError {
                last_known_state,
                vm,
                ..DriverError::new(code, message)
            },
        )
    }

    fn result_of<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Result<T, DriverError>> {
        prop_oneof![value.prop_map(Ok), any_error().prop_map(Err)]
    }

    fn any_problems() -> impl Strategy<Value = ClassProblems> {
        let some = || collection::vec((text(), text()).prop_map(|(path, text)| FieldProblem { path, text }), 0..3);
        (some(), some()).prop_map(|(errors, warnings)| ClassProblems { errors, warnings, ..ClassProblems::default() })
    }

    /// Over the wire and back.
    fn sent<T: Message + Default>(message: &T) -> T {
        T::decode(message.encode_to_vec().as_slice()).unwrap()
    }

    fn collected(messages: Vec<proto::ListResponse>) -> Option<Result<VmsByProviderId, DriverError>> {
        let mut listing = VmListReader::default();
        messages.into_iter().find_map(|message| listing.take(sent(&message)))
    }

    proptest! {
        #[test]
        fn a_request_arrives_as_it_was_sent(
            machine in machine(),
            class in machine_class(),
            data in collection::btree_map(text(), collection::vec(any::<u8>(), 0..9), 0..3),
            owner in text(),
        ) {
            let (machine, class) = (Arc::new(machine), Arc::new(class));
            let request = MachineRequest { machine, class, secret: SecretData(data), owner, may_pause: false };
            let message = sent(&machine_request("aws", &request).unwrap());
            prop_assert_eq!(&message.provider, "aws");
            let arrived = read_machine_request(message).unwrap();
            prop_assert_eq!((&arrived.machine, &arrived.class), (&request.machine, &request.class));
            prop_assert_eq!((arrived.secret.0, arrived.owner), (request.secret.0, request.owner));
        }

        #[test]
        fn a_result_arrives_as_it_was_sent(
            vm in result_of(any_vm()),
            deleted in result_of(option::of(text())),
            problems_of in result_of(any_problems()),
            ids in result_of(collection::vec(text(), 0..3)),
        ) {
            prop_assert_eq!(read_vm_result(sent(&vm_result(vm.clone()))), vm);
            prop_assert_eq!(read_deletion(sent(&deletion(deleted.clone()))), deleted);
            prop_assert_eq!(read_problems(sent(&problems(problems_of.clone()))), problems_of);
            prop_assert_eq!(read_volume_ids(sent(&volume_ids(ids.clone()))), ids);
        }
    }

    #[rstest]
    #[case(0)]
    #[case(1)]
    #[case(PAGE)]
    #[case(2 * PAGE + 1)]
    fn a_list_arrives_complete_in_pages(#[case] count: usize) {
        let vm = |number: usize| {
            ListedVm::new(format!("m-{number}"), Some(format!("o-{number}")).filter(|_| number.is_multiple_of(2)))
        };
        let all: VmsByProviderId = (0..count).map(|number| (format!("id-{number}"), vm(number))).collect();
        let messages = list(Ok(all.clone()));
        assert_eq!(messages.len(), count.div_ceil(PAGE) + 1);
        assert_eq!(collected(messages.clone()), Some(Ok(all)));
        assert_eq!(collected(messages[..messages.len() - 1].to_vec()), None, "without its end it is not complete");
        if count > 0 {
            let error = collected(messages[1..].to_vec()).unwrap().unwrap_err();
            assert_eq!(error.code, Code::Internal, "a page is missing: {error}");
        }
    }

    #[test]
    fn a_list_may_fail_at_any_time_and_a_vm_of_two_machines_or_owners_has_no_name() {
        let page_of = |vm: ListedVm| list(Ok([("id".to_owned(), vm)].into())).remove(0);
        let page = page_of(ListedVm::unmarked("a"));
        let failed = list(Err(DriverError::new(Code::Aborted, "x"))).remove(0);
        assert_eq!(collected(vec![page.clone(), failed]).unwrap().unwrap_err().code, Code::Aborted);
        let end = proto::ListResponse { part: Some(proto::list_response::Part::End(proto::End { count: 2 })) };
        for other in [ListedVm::unmarked("b"), ListedVm::new("a", Some("team-b".to_owned()))] {
            let pages = vec![page.clone(), page_of(other), end.clone()];
            assert_eq!(collected(pages), Some(Ok([("id".to_owned(), ListedVm::unmarked(""))].into())));
        }
    }

    /// The message of a program that does not implement it, or a default message.
    #[test]
    fn an_empty_message_is_no_result() {
        let codes = [
            read_vm_result(proto::VmResponse::default()).unwrap_err().code,
            read_deletion(proto::DeleteResponse::default()).unwrap_err().code,
            read_problems(proto::ValidateResponse::default()).unwrap_err().code,
            read_volume_ids(proto::VolumeIdsResponse::default()).unwrap_err().code,
            read_inspection(proto::InspectResponse::default()).unwrap_err().code,
            read_tagging(proto::TagResponse::default()).unwrap_err().code,
            read_capacity(proto::CapacityResponse::default()).unwrap_err().code,
            VmListReader::default().take(proto::ListResponse::default()).unwrap().unwrap_err().code,
            read_failure(proto::Failure::default()).code,
            read_failure(proto::Failure { code: 99, ..proto::Failure::default() }).code,
        ];
        assert_eq!(codes, [Code::Unknown; 10]);
    }

    #[test]
    fn codes_have_the_same_numbers_on_the_wire() {
        for code in Code::ALL {
            let name = format!("{:?}", proto::Code::try_from(code as i32).unwrap());
            assert_eq!(name, code.as_str());
        }
        assert!(proto::Code::try_from(18).is_err());
    }

    #[test]
    fn a_broken_call_never_says_that_a_vm_is_absent_or_that_a_quota_is_used_up() {
        for number in 1..=16 {
            let code = broken_call(&tonic::Status::new(tonic::Code::from_i32(number), "x")).code;
            let is_harmless =
                code.is_transient() || matches!(code, Code::Internal | Code::Unauthenticated | Code::PermissionDenied);
            assert!(is_harmless, "gRPC status {number} became {code}");
        }
    }

    #[test]
    fn no_debug_output_shows_a_secret() {
        let data = || HashMap::from([("key".to_owned(), b"hunter2".to_vec())]);
        let request = proto::MachineRequest { secret: data(), ..proto::MachineRequest::default() };
        let list = proto::ListRequest { secret: data(), ..proto::ListRequest::default() };
        let shown = format!("{request:?} {list:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_without_its_content() {
        let error = read_class(json!({"provider": ["hunter2"]}).to_string().as_bytes()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("MachineClass") && !error.message.contains("hunter2"), "{error}");
    }
}
