import ServiceLifecycle
let ChatDispatchPlaceholder = 0
