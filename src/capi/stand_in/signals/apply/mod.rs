//! Checks for core, and records the result.

use std::sync::Arc;

use kube::Client;

use crate::stand_in::{
    observe::{Definition, Ground},
    settings::{ROLE_NAME, Settings},
    standing,
};
use mcm_runtime::{
    cell::{Builder, Kind},
    poll::{self, Poll, PollResult},
};

mod memory;

pub(in crate::stand_in) use memory::Core;

pub(in crate::stand_in) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// Polls for signs of core.
struct Signals {
    core: Arc<Core>,
    ground: Ground,
    control: Client,
}

impl Poll for Signals {
    const NAME: &'static str = "coreprovider";

    async fn poll(&self) -> PollResult {
        self.core.ask(&self.control, self.ground.has_inventory()).await;
        if matches!(self.core.asked(), Some(Err(_))) { PollResult::Failure } else { PollResult::Answer }
    }

    fn forget(&self) {
        self.core.forget();
    }
}

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let core = builder.shared::<Core>();
    let signals = Signals { core, ground: Ground::new(builder), control: builder.config().control.clone() };
    let poller = poll::register(builder, signals);
    // clusterctl labels the definitions of core before anything else, and those are watched.
    builder.on_change::<Definition>(move |change| {
        if standing::is_of_core(&change.key.name) || change.key.name == standing::INVENTORY {
            poller.request();
        }
    });
}
