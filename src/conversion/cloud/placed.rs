//! Provider IDs of clouds whose driver writes a place before the ID of the VM, as the Go driver does, while the cloud
//! controller manager writes only the ID of the VM on Nodes.

use serde_json::Value;

/// Both forms of the IDs of a cloud.
pub struct ProviderIdForms {
    /// Scheme of both forms, such as `vsphere://`.
    pub scheme: &'static str,
    /// Begins the form of the driver; place, slash and ID follow.
    pub driver: &'static str,
    /// Begins the form of the Node; the ID follows.
    pub node: &'static str,
    /// Pointer to the place in a `providerSpec`.
    pub place: &'static str,
}

impl ProviderIdForms {
    /// The form of the driver. An ID without a place gets that of the class, or stays.
    pub fn to_native(&self, id: &str, spec: &Value) -> String {
        let Some((place, vm)) = self.split(id) else { return id.to_owned() };
        let of_class = || spec.pointer(self.place).and_then(Value::as_str).filter(|place| !place.is_empty());
        match place.or_else(of_class) {
            Some(place) => format!("{}{place}/{vm}", self.driver),
            None => id.to_owned(),
        }
    }

    /// The form of the Node.
    pub fn to_node(&self, id: &str) -> String {
        self.split(id).map_or_else(|| id.to_owned(), |(_, vm)| format!("{}{vm}", self.node))
    }

    /// The place, if the ID has one, and the ID of the VM. `None` if it has more parts.
    fn split<'a>(&self, id: &'a str) -> Option<(Option<&'a str>, &'a str)> {
        let parts: Vec<&str> = id.strip_prefix(self.scheme)?.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            [vm] if !vm.is_empty() => Some((None, vm)),
            [place, vm] if !place.is_empty() && !vm.is_empty() => Some((Some(place), vm)),
            _ => None,
        }
    }
}
