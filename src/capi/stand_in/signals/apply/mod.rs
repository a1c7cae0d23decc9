//! Checks for core, and records the result.

use std::sync::Arc;

use kube::Client;

use crate::stand_in::{
    observe::{ClusterScopedCrd, PreconditionReader},
    settings::{ROLE_NAME, Settings},
    standing,
};
use mcm_runtime::{
    cell::{CellBuilder, Kind},
    poll::{self, PollResult, PollTask},
};

mod memory;

pub(in crate::stand_in) use memory::CoreCheckState;

pub(in crate::stand_in) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// Polls for signs of core.
struct CoreSignalPoller {
    core: Arc<CoreCheckState>,
    ground: PreconditionReader,
    control: Client,
}

impl PollTask for CoreSignalPoller {
    const NAME: &'static str = "coreprovider";

    async fn poll(&self) -> PollResult {
        self.core.ask(&self.control, self.ground.has_inventory()).await;
        if matches!(self.core.asked(), Some(Err(_))) { PollResult::Failure } else { PollResult::Answer }
    }

    fn forget(&self) {
        self.core.forget();
    }
}

fn register(builder: &mut CellBuilder<'_>, _: &Settings) {
    let core = builder.shared::<CoreCheckState>();
    let signals =
        CoreSignalPoller { core, ground: PreconditionReader::new(builder), control: builder.config().control.clone() };
    let poller = poll::register(builder, signals);
    // clusterctl labels the definitions of core before anything else, and those are watched.
    builder.on_change::<ClusterScopedCrd>(move |change| {
        if standing::is_of_core(&change.key.name) || change.key.name == standing::INVENTORY {
            poller.request();
        }
    });
}
