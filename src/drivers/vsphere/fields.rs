//! Custom fields of VMs. Their definitions are for the whole vCenter; they are made once, and their keys remembered.

use std::collections::BTreeMap;

use mcm_driver::cloud::CloudFailure;
use tokio::sync::Mutex;

use super::{calls::Api, vm::VirtualMachine};

/// The keys of the custom fields of a vCenter, by their names. Definitions are made one at a time.
#[derive(Default)]
pub(crate) struct Fields(Mutex<BTreeMap<String, i64>>);

impl Fields {
    /// Sets those custom fields of a VM that have another value.
    pub(crate) async fn set(
        &self,
        api: &Api,
        vm: &VirtualMachine,
        values: &BTreeMap<String, String>,
    ) -> Result<(), CloudFailure> {
        let changed: BTreeMap<_, _> = values.iter().filter(|(name, value)| !vm.has(name, value)).collect();
        let keys = self.keys(api, changed.keys().map(|name| name.as_str())).await?;
        for (name, value) in changed {
            let Some(key) = keys.get(name) else { continue };
            let set = api.set_field(&vm.reference, *key, value).await;
            if set.as_ref().is_err_and(|failure| failure.is("InvalidArgument")) {
                // The definition was removed and made again.
                self.0.lock().await.clear();
            }
            set?;
        }
        Ok(())
    }

    /// The keys of custom fields. Defines the missing ones.
    async fn keys(
        &self,
        api: &Api,
        names: impl Iterator<Item = &str> + Clone,
    ) -> Result<BTreeMap<String, i64>, CloudFailure> {
        let mut keys = self.0.lock().await;
        if names.clone().any(|name| !keys.contains_key(name)) {
            *keys = defined(api).await?;
        }
        for name in names {
            if keys.contains_key(name) {
                continue;
            }
            match api.add_field(name).await {
                // Another process was faster.
                Err(failure) if failure.is("DuplicateName") => keys.extend(defined(api).await?),
                key => drop(keys.insert(name.to_owned(), key?)),
            }
        }
        Ok(keys.clone())
    }
}

async fn defined(api: &Api) -> Result<BTreeMap<String, i64>, CloudFailure> {
    Ok(api.fields().await?.into_iter().map(|(key, name)| (name, key)).collect())
}
