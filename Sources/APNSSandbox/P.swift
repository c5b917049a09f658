import Hummingbird
import CryptoExtras
let APNSSandboxPlaceholder = 0
