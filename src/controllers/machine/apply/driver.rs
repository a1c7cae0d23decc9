use std::{sync::Arc, time::Instant};

use kube::ResourceExt;

use super::{ports::MachineContext, session::MachineSession};
use crate::machine::{Action, ClassView, Snapshot, metrics, token, watch_vm};
use mcm_driver::{CloudAccount, Code, DriverError, MachineRequest, SecretData, cloud::creating_while};
use mcm_runtime::fence::{self, FencedCall};

/// Calls the driver. The result is stored with the time at which it arrived.
pub(super) async fn call(context: &MachineContext, snapshot: &mut Snapshot, session: &MachineSession, action: &Action) {
    let ClassView::Present { class, .. } = &snapshot.class else { return };
    let Ok(driver) = context.drivers.get(class) else { return };
    let owner = match action {
        Action::CreateVm => owner(context, snapshot).await,
        _ => Ok(String::new()),
    };
    let owner = match owner {
        Ok(owner) => owner,
        Err(error) => {
            snapshot.now = context.now();
            return snapshot.vm_created(Err(error));
        }
    };
    let request = MachineRequest {
        machine: Arc::clone(&snapshot.machine),
        class: Arc::clone(class),
        secret: filled_in(snapshot, session, action),
        owner,
        may_pause: true,
    };
    if !matches!(action, Action::GetVmStatus) && !fence::may_send(FencedCall::Cloud) {
        return;
    }
    let start = Instant::now();
    match action {
        Action::GetVmStatus => {
            if watch_vm::is_needed(snapshot) {
                let machine = snapshot.machine.name_any();
                context.checks.look_up(CloudAccount::from_class(class), machine, |_| async {}).await;
            }
            let answer = driver.status(&request).await;
            snapshot.now = context.now();
            snapshot.vm_status(answer);
        }
        Action::CreateVm => {
            let answer = while_leading(driver.create(&request)).await;
            snapshot.now = context.now();
            metrics::called(snapshot, action, answer.is_ok(), start.elapsed(), &context.measured);
            snapshot.vm_created(answer);
        }
        Action::InitializeVm => {
            let answer = while_leading(driver.initialize(&request)).await;
            snapshot.now = context.now();
            metrics::called(snapshot, action, answer.is_ok(), start.elapsed(), &context.measured);
            snapshot.vm_initialized(answer);
        }
        _ => {
            metrics::drained_quickly(snapshot, &context.measured);
            let answer = while_leading(driver.delete(&request)).await;
            snapshot.now = context.now();
            metrics::called(snapshot, action, answer.is_ok(), start.elapsed(), &context.measured);
            if answer.is_ok() && !snapshot.machine.spec.provider_id.is_empty() {
                context.freed.vm_deleted(&request.class);
            }
            snapshot.vm_deleted(answer);
        }
    }
}

/// Calls a driver until this process may no longer act. Then the call is given up, with an unknown outcome as after a timeout, and
/// a creation that it began sends no further request.
pub(crate) async fn while_leading<T>(call: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
    let fence = fence::current();
    let right = Arc::new(move || fence.is_open());
    let given_up = || {
        let message = "the call was given up, because this process is no longer the leader; its outcome is unknown";
        Err(DriverError::new(Code::Canceled, message))
    };
    fence::while_open(creating_while(right, call)).await.unwrap_or_else(given_up)
}

/// The owner marker of the new VM. Without a marker an orphan collector of another namespace might delete it, so an
/// unknown owner is treated as an API server that does not answer.
async fn owner(context: &MachineContext, snapshot: &Snapshot) -> Result<String, DriverError> {
    let namespace = snapshot.machine.namespace().unwrap_or_default();
    match context.owners.namespace_owner(&namespace).await {
        Ok(owner) => Ok(owner.marker().to_owned()),
        Err(error) => Err(DriverError::new(Code::Unavailable, format!("VM not created: {error}"))),
    }
}

/// User data for a call: with its placeholders substituted for `create` and `initialize`, unchanged for other calls and
/// if the Machine specifies user data.
fn filled_in(snapshot: &Snapshot, session: &MachineSession, action: &Action) -> SecretData {
    let mut secret = session.secret.clone();
    if matches!(action, Action::CreateVm | Action::InitializeVm)
        && snapshot.machine.user_data_secret().is_none()
        && let Some(user_data) = secret.0.get_mut("userData")
    {
        *user_data = token::fill_in(user_data, &snapshot.machine.name_any(), session.token.as_deref());
    }
    secret
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;
    use mcm_driver::{
        cloud::{CreationLedger, VmCreations},
        testing::FakeDriver,
    };
    use mcm_runtime::fence::LeaseFence;

    #[tokio::test(start_paused = true)]
    async fn a_creation_whose_look_outlasts_the_lease_sends_no_request() {
        let (creations, sent) = (VmCreations::<usize>::new(Duration::from_mins(5)), Arc::new(AtomicUsize::new(0)));
        let (request, fence) = (FakeDriver::request(), LeaseFence::default());
        let look = async {
            sleep(Duration::from_secs(30)).await;
            Ok(None)
        };
        let count = Arc::clone(&sent);
        let create = async move { Ok(count.fetch_add(1, Relaxed)) };
        let call = fence::within(fence.clone(), while_leading(creations.run_steps(&request, look, create)));
        let lose = async {
            sleep(Duration::from_secs(10)).await;
            fence.close();
        };
        let start = tokio::time::Instant::now();
        let (answer, ()) = tokio::join!(call, lose);
        assert_eq!((answer.unwrap_err().code, start.elapsed()), (Code::Canceled, Duration::from_secs(10)));
        creations.settled(&request.machine).await;
        assert_eq!((sent.load(Relaxed), start.elapsed()), (0, Duration::from_secs(30)));
    }
}
