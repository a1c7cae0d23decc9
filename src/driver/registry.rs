//! Which driver serves a class.

use std::{collections::BTreeMap, sync::Arc};

use super::Driver;
use crate::api::machine::MachineClass;

/// Drivers by the name that stands in `MachineClass.provider`. The case of names does not matter.
#[derive(Clone, Default)]
pub struct Registry {
    drivers: BTreeMap<String, Arc<dyn Driver>>,
}

/// No driver serves a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownProvider {
    /// The class names a provider that is not there.
    #[error("class {class:?} names provider {provider:?}, which this controller does not serve: {}", advice(.known))]
    Other {
        /// Name of the class.
        class: String,
        /// What it asks for.
        provider: String,
        /// Names that would do, in order.
        known: Vec<String>,
    },
    /// The class names none, and there is not exactly one to choose from.
    #[error("class {class:?} names no provider: {}", advice(.known))]
    Missing {
        /// Name of the class.
        class: String,
        /// Names that would do, in order.
        known: Vec<String>,
    },
}

impl Registry {
    /// The given drivers; of two with the same name the later.
    pub fn new(drivers: impl IntoIterator<Item = Arc<dyn Driver>>) -> Self {
        Self { drivers: drivers.into_iter().map(|driver| (driver.name().to_ascii_lowercase(), driver)).collect() }
    }

    /// The driver of a class. A class without a provider is served by the only driver, if there is only one: the
    /// reference, one process per driver, leaves the check to drivers, and some make none.
    ///
    /// # Errors
    /// When no driver has that name.
    pub fn get(&self, class: &MachineClass) -> Result<Arc<dyn Driver>, UnknownProvider> {
        let provider = class.provider.trim();
        if provider.is_empty() {
            let mut drivers = self.drivers.values();
            return match (drivers.next(), drivers.next()) {
                (Some(only), None) => Ok(Arc::clone(only)),
                _ => Err(UnknownProvider::Missing { class: name_of(class), known: self.names() }),
            };
        }
        self.drivers.get(&provider.to_ascii_lowercase()).cloned().ok_or_else(|| UnknownProvider::Other {
            class: name_of(class),
            provider: provider.to_owned(),
            known: self.names(),
        })
    }

    /// Names as the drivers spell them, in order.
    pub fn names(&self) -> Vec<String> {
        self.drivers.values().map(|driver| driver.name().to_owned()).collect()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}

fn name_of(class: &MachineClass) -> String {
    class.metadata.name.clone().unwrap_or_default()
}

fn advice(known: &[String]) -> String {
    if known.is_empty() {
        "start it with a driver".to_owned()
    } else {
        format!("set provider to one of: {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fake::FakeDriver;
    use rstest::rstest;

    fn registry(names: &[&'static str]) -> Registry {
        Registry::new(names.iter().map(|name| Arc::new(FakeDriver::named(name)) as Arc<dyn Driver>))
    }

    fn class(provider: &str) -> MachineClass {
        let mut class = MachineClass { provider: provider.to_owned(), ..MachineClass::default() };
        class.metadata.name = Some("x".to_owned());
        class
    }

    #[rstest]
    #[case(&["AWS", "simulated"], "AWS", "AWS")]
    #[case(&["AWS", "simulated"], "aws", "AWS")]
    #[case(&["AWS", "simulated"], "Simulated", "simulated")]
    #[case(&["simulated"], "", "simulated")]
    fn a_class_finds_its_driver(#[case] known: &[&'static str], #[case] provider: &str, #[case] expected: &str) {
        assert_eq!(registry(known).get(&class(provider)).unwrap().name(), expected);
    }

    #[rstest]
    #[case(&["simulated"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: simulated"#)]
    #[case(&["simulated", "AWS"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: AWS, simulated"#)]
    #[case(&["simulated", "AWS"], "", r#"class "x" names no provider: set provider to one of: AWS, simulated"#)]
    #[case(&[], "foo", r#"class "x" names provider "foo", which this controller does not serve: start it with a driver"#)]
    fn a_refusal_says_what_to_write_instead(
        #[case] known: &[&'static str],
        #[case] provider: &str,
        #[case] expected: &str,
    ) {
        let error = registry(known).get(&class(provider)).err().unwrap();
        assert_eq!(error.to_string(), expected);
    }
}
