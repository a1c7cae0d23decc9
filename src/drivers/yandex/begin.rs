//! The begin of a creation: a search for the instance of a Machine, and a request if it is absent.

use std::sync::Arc;

use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    cloud::{CloudFailure, CloudSession, MachineIdentity, created_for, only},
};

use crate::{
    instance::Instance,
    login::user_data,
    operation::{Begun, Made},
    order::Order,
    picks::Picks,
    request::{key, spent_requests},
    session::Session,
};

/// Requests of one creation, if the earlier ones turn out to be spent.
const MOST_REQUESTS: u32 = 5;

/// The instance with the name of a Machine, if there is one.
pub(crate) async fn look(session: Session, machine: Arc<Machine>) -> Result<Option<Made>, DriverError> {
    let wanted = MachineIdentity::from_machine(&machine);
    let instances = session.named(&machine).await?;
    let found = created_for(instances.clone(), wanted, &session.scope);
    match instances.first() {
        None => Ok(None),
        Some(other) if found.is_empty() => Err(of_another(other, wanted)),
        Some(_) => Ok(Some(Made::Found(only(found, wanted.name)?))),
    }
}

/// Sends requests until one begins an operation, or has begun one whose instance is there.
pub(crate) async fn begin(session: Session, request: MachineRequest, picks: Arc<Picks>) -> Result<Made, CloudFailure> {
    let (api, machine) = (&session.api, &*request.machine);
    let addresses = picks.addresses(api, &session.spec).await.map_err(before)?;
    let order = Order {
        spec: &session.spec,
        folder: &session.scope.folder,
        wanted: MachineIdentity::from_machine(machine),
        owner: &request.owner,
        user_data: user_data(&request.secret).map_err(before)?,
        addresses: &addresses,
    };
    let body = order.body();
    let first = spent_requests(machine);
    let last = first.saturating_add(MOST_REQUESTS - 1);
    let mut number = first;
    loop {
        let operation = api.create(&body, &key(machine, number).map_err(before)?).await?;
        if !operation.done || number >= last {
            return Ok(Made::Begun(Begun::now(operation, number)));
        }
        // The cloud remembers this request: it is an earlier one.
        let instance = operation.instance().filter(|_| operation.failure().is_none());
        if let Some(id) = instance
            && let Some(instance) = api.instance(id).await.map_err(before)?
        {
            return Ok(Made::Found(instance));
        }
        number = number.saturating_add(1);
    }
}

/// The failure of a request that was not sent, because a call before it failed.
fn before(error: DriverError) -> CloudFailure {
    CloudFailure::Credentials(error)
}

fn of_another(instance: &Instance, wanted: MachineIdentity<'_>) -> DriverError {
    let message = format!(
        "instance {} has the name of machine {:?} and is of another cluster or an earlier machine: delete it, or rename one",
        instance.id, wanted.name
    );
    DriverError::new(Code::AlreadyExists, message)
}
