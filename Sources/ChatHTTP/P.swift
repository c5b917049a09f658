import NIOHTTPCompression
import HummingbirdTLS
import Hummingbird
let ChatHTTPPlaceholder = 0
