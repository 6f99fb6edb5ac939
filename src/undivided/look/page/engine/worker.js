// The worker of a page with a Transformer.

import { serve } from "./mailbox.js";
import { Transformer } from "./model.js";
import { writingAsks } from "./writing.js";

serve(writingAsks(Transformer));
