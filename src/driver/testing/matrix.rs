//! The matrix of faults: each call of a cloud fails in each way, during a creation, look-up, list or deletion. The outcome
//! is a code and the number of VMs; the next attempt without a fault leads to exactly one VM, or to none after a deletion.

use std::time::Duration;

use futures::future::join_all;

use super::{
    server::Fault,
    suite::{PATIENT, SETTLES, World, with_state},
    with_id,
};
use crate::{Code, DriverError, MachineRequest, interface::Driver};

pub use super::case::Case;

/// All cases, in the order of the columns.
pub const CASES: [Case; 10] = [
    Case::LostAnswer,
    Case::Throttle,
    Case::ServerError,
    Case::TimeOut,
    Case::Malformed,
    Case::Auth,
    Case::Denied,
    Case::StockOut,
    Case::Quota,
    Case::NotFound,
];

/// The operation of the driver during which the call fails. All but a creation begin with a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// A creation.
    Create,
    /// A look-up by name.
    Status,
    /// A look-up by provider ID.
    StatusById,
    /// A list of VMs.
    List,
    /// By name.
    Delete,
    /// A deletion by provider ID.
    DeleteById,
}

/// A code, or success, and how many VMs there are then.
pub type Outcome = (Option<Code>, usize);

/// A row of the matrix.
pub struct Row {
    /// The operation of the driver.
    pub during: During,
    /// The call that fails.
    pub call: &'static str,
    /// By case.
    pub outcomes: [Outcome; CASES.len()],
}

/// The outcomes of a call that are the same for most calls, and the others: of a lost answer, of an error of something before
/// the cloud, and of what was not found. `vms` are there in all other cases.
pub const fn usual(vms: usize, lost: Outcome, not_found: Outcome) -> [Outcome; CASES.len()] {
    [
        lost,
        (Some(Code::Unavailable), vms),
        (Some(Code::Unavailable), vms),
        (Some(Code::DeadlineExceeded), vms),
        (Some(Code::Unknown), vms),
        (Some(Code::Unauthenticated), vms),
        (Some(Code::PermissionDenied), vms),
        (Some(Code::ResourceExhausted), vms),
        (Some(Code::ResourceExhausted), vms),
        not_found,
    ]
}

/// The code of an answer that cannot be read, or was lost.
pub const UNKNOWN: Option<Code> = Some(Code::Unknown);

/// The outcomes of a look-up: without an answer the VM may exist or not, so there are as many as before.
pub const fn look_up(vms: usize) -> [Outcome; CASES.len()] {
    usual(vms, (UNKNOWN, vms), (UNKNOWN, vms))
}

/// The fault of a case.
pub fn fault_of<W: World>(case: Case) -> Fault {
    match case {
        Case::LostAnswer => Fault::LostAnswer,
        Case::ServerError => Fault::Status(503),
        Case::TimeOut => Fault::TimeOut,
        Case::Malformed => Fault::Malformed,
        case => Fault::Error(W::error(case)),
    }
}

/// Only where there is no answer does a driver give up soon: a slow machine is not a fault.
const fn attempt_of<W: World>(case: Case) -> Duration {
    if matches!(case, Case::TimeOut) { W::SHORT } else { PATIENT }
}

/// Checks all cases of a row.
pub async fn check<W: World>(row: &Row) {
    join_all(CASES.into_iter().zip(row.outcomes).map(|(case, expected)| check_case::<W>(row, case, expected))).await;
}

async fn check_case<W: World>(row: &Row, case: Case, expected: Outcome) {
    let what = format!("{:?} with {case:?} of {}", row.during, row.call);
    let world = W::for_matrix().await;
    let [failing, patient] = [attempt_of::<W>(case), PATIENT].map(|attempt| world.driver_with(attempt, SETTLES));
    let request = world.request_of_matrix();
    let vm = match row.during {
        During::Create => None,
        _ => Some(patient.create(&request).await.unwrap()),
    };
    let known = vm.as_ref().map_or_else(|| request.clone(), |vm| with_id(request.clone(), &vm.provider_id));
    world.switch().fail(row.call, fault_of::<W>(case), 99);
    let error = perform(&*failing, row.during, &request, &known).await.err();
    world.switch().clear();
    if let Some(error) = &error {
        check_text::<W>(error, &what);
    }
    assert_eq!((error.as_ref().map(|error| error.code), world.vms()), expected, "{what}: {error:?}");
    let state = error.and_then(|error| error.last_known_state);
    let (request, known) = (with_state(request, state.as_deref()), with_state(known, state.as_deref()));
    // A request with an unknown outcome may take its time.
    let is_deletion = matches!(row.during, During::Delete | During::DeleteById);
    let next = if is_deletion { row.during } else { During::Create };
    while let Err(error) = perform(&*patient, next, &request, &known).await {
        assert!(error.code.is_transient(), "{what}, next attempt: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.vms(), usize::from(!is_deletion), "{what}, next attempt");
    if let Some(vm) = vm.filter(|_| !is_deletion) {
        assert_eq!(patient.status(&known).await.unwrap().provider_id, vm.provider_id, "{what}");
    }
}

async fn perform(
    driver: &dyn Driver,
    during: During,
    request: &MachineRequest,
    known: &MachineRequest,
) -> Result<(), DriverError> {
    match during {
        During::Create => driver.create(request).await.map(drop),
        During::Status => driver.status(request).await.map(drop),
        During::StatusById => driver.status(known).await.map(drop),
        During::List => driver.list(&request.class, &request.secret).await.map(drop),
        During::Delete => driver.delete(request).await.map(drop),
        During::DeleteById => driver.delete(known).await.map(drop),
    }
}

fn check_text<W: World>(error: &DriverError, what: &str) {
    for text in [Some(&error.message), error.last_known_state.as_ref()].into_iter().flatten() {
        for secret in W::SECRETS {
            assert!(!text.contains(secret), "{what}: {text}");
        }
        assert_eq!(text.matches('[').count(), text.matches(']').count(), "{what}: {text}");
    }
}
