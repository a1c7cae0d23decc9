//! Static public addresses: each VM gets one from the list of its class.

use std::{collections::HashMap, time::Duration};

use mcm_driver::{Code, DriverError};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{calls::Api, spec::Spec};

/// The cloud shows an address as used so long after a request with it.
const SETTLES: Duration = Duration::from_secs(60);

/// The addresses that were picked lately, and when.
#[derive(Default)]
pub(crate) struct Picks(Mutex<HashMap<String, Instant>>);

impl Picks {
    /// An address for each interface whose class lists some.
    ///
    /// # Errors
    /// [`Code::ResourceExhausted`]: all are in use.
    pub(crate) async fn addresses(&self, api: &Api, spec: &Spec) -> Result<Vec<Option<String>>, DriverError> {
        let lists_some = |wanted: &[String], is_public: bool| is_public && !wanted.is_empty();
        let interfaces = spec.interfaces.iter().map(|one| (one.public_addresses.as_slice(), one.has_public_address));
        if !interfaces.clone().any(|(wanted, is_public)| lists_some(wanted, is_public)) {
            return Ok(Vec::new());
        }
        let all = api.addresses().await?;
        let free: Vec<&str> = all.iter().filter(|one| !one.used).filter_map(|one| one.value()).collect();
        let pick = |(wanted, is_public): (&[String], bool)| {
            if lists_some(wanted, is_public) { self.pick(&free, wanted).map(Some) } else { Ok(None) }
        };
        interfaces.map(pick).collect()
    }

    /// The first free address that is wanted, and was not picked a moment ago.
    fn pick(&self, free: &[&str], wanted: &[String]) -> Result<String, DriverError> {
        let mut picked = self.0.lock();
        picked.retain(|_, since| since.elapsed() < SETTLES);
        let is_usable = |address: &&&str| wanted.iter().any(|one| one == **address) && !picked.contains_key(**address);
        let Some(address) = free.iter().find(is_usable).map(|address| (*address).to_owned()) else {
            let message = format!("none of the public addresses {} is free in the folder", wanted.join(", "));
            return Err(DriverError::new(Code::ResourceExhausted, message));
        };
        picked.insert(address.clone(), Instant::now());
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_not_picked_twice_before_the_cloud_shows_it_as_used() {
        let (picks, wanted) = (Picks::default(), ["b", "a", "x"].map(str::to_owned));
        let pick = || picks.pick(&["a", "b", "c"], &wanted).map_err(|error| error.code);
        assert_eq!([pick(), pick()], [Ok("a".to_owned()), Ok("b".to_owned())], "in the order of the cloud");
        assert_eq!(pick(), Err(Code::ResourceExhausted));
        tokio::time::advance(SETTLES).await;
        assert_eq!(pick(), Ok("a".to_owned()));
    }
}
